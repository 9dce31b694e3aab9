#pragma once
// curl_easy_setopt and curl_easy_getinfo take variable arguments, which Swift cannot call.
#include <curl/curl.h>

#define CCURL static inline __attribute__((unused))

typedef size_t (*ccurl_callback)(char *_Nullable bytes, size_t size, size_t count, void *_Nullable context);
typedef int (*ccurl_seek)(void *_Nullable context, curl_off_t offset, int origin);
typedef curl_socket_t (*ccurl_opener)(void *_Nullable context, curlsocktype purpose,
                                      struct curl_sockaddr *_Nullable address);
typedef int (*ccurl_before_request)(void *_Nullable context, char *_Nullable remote, char *_Nullable local,
                                    int remote_port, int local_port);

CCURL CURLcode ccurl_set_text(CURL *_Nonnull handle, CURLoption option, const char *_Nullable value) {
  return curl_easy_setopt(handle, option, value);
}

CCURL CURLcode ccurl_set_number(CURL *_Nonnull handle, CURLoption option, long value) {
  return curl_easy_setopt(handle, option, value);
}

CCURL CURLcode ccurl_set_list(CURL *_Nonnull handle, CURLoption option, struct curl_slist *_Nullable value) {
  return curl_easy_setopt(handle, option, value);
}

/// Where errors are put into words: CURL_ERROR_SIZE bytes.
CCURL CURLcode ccurl_set_error_text(CURL *_Nonnull handle, char *_Nullable buffer) {
  return curl_easy_setopt(handle, CURLOPT_ERRORBUFFER, buffer);
}

CCURL CURLcode ccurl_set_body(CURL *_Nonnull handle, ccurl_callback _Nonnull callback, void *_Nullable context) {
  CURLcode code = curl_easy_setopt(handle, CURLOPT_WRITEFUNCTION, callback);
  return code ? code : curl_easy_setopt(handle, CURLOPT_WRITEDATA, context);
}

CCURL CURLcode ccurl_set_header(CURL *_Nonnull handle, ccurl_callback _Nonnull callback, void *_Nullable context) {
  CURLcode code = curl_easy_setopt(handle, CURLOPT_HEADERFUNCTION, callback);
  return code ? code : curl_easy_setopt(handle, CURLOPT_HEADERDATA, context);
}

/// Sizes: options whose value is a curl_off_t.
CCURL CURLcode ccurl_set_size(CURL *_Nonnull handle, CURLoption option, long long value) {
  return curl_easy_setopt(handle, option, (curl_off_t)value);
}

/// Where the bytes of a body come from, and how it is told to begin again.
CCURL CURLcode ccurl_set_source(CURL *_Nonnull handle, ccurl_callback _Nonnull read, ccurl_seek _Nonnull seek,
                                void *_Nullable context) {
  CURLcode code = curl_easy_setopt(handle, CURLOPT_READFUNCTION, read);
  if (!code) code = curl_easy_setopt(handle, CURLOPT_READDATA, context);
  if (!code) code = curl_easy_setopt(handle, CURLOPT_SEEKFUNCTION, seek);
  return code ? code : curl_easy_setopt(handle, CURLOPT_SEEKDATA, context);
}

/// Opens the socket to an address that was found, or refuses it with CURL_SOCKET_BAD.
CCURL CURLcode ccurl_set_opener(CURL *_Nonnull handle, ccurl_opener _Nonnull callback, void *_Nullable context) {
  CURLcode code = curl_easy_setopt(handle, CURLOPT_OPENSOCKETFUNCTION, callback);
  return code ? code : curl_easy_setopt(handle, CURLOPT_OPENSOCKETDATA, context);
}

/// Called when a connection stands and the request is about to be written.
CCURL CURLcode ccurl_set_before_request(CURL *_Nonnull handle, ccurl_before_request _Nonnull callback,
                                        void *_Nullable context) {
  CURLcode code = curl_easy_setopt(handle, CURLOPT_PREREQFUNCTION, callback);
  return code ? code : curl_easy_setopt(handle, CURLOPT_PREREQDATA, context);
}

CCURL CURLMcode ccurl_multi_set_number(CURLM *_Nonnull handle, CURLMoption option, long value) {
  return curl_multi_setopt(handle, option, value);
}

/// Connections that the last transfer had to open.
CCURL long ccurl_connects(CURL *_Nonnull handle) {
  long count = 0;
  return curl_easy_getinfo(handle, CURLINFO_NUM_CONNECTS, &count) ? 0 : count;
}

CCURL long ccurl_status(CURL *_Nonnull handle) {
  long status = 0;
  return curl_easy_getinfo(handle, CURLINFO_RESPONSE_CODE, &status) ? 0 : status;
}

/// libcurl's own set-up, which must come before anything else; 0 for success. Call it once.
CCURL CURLcode ccurl_start(void) { return curl_global_init(CURL_GLOBAL_DEFAULT); }
