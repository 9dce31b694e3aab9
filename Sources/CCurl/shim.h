#pragma once
// curl_easy_setopt and curl_easy_getinfo take variable arguments, which Swift cannot call.
#include <curl/curl.h>

#define CCURL static inline __attribute__((unused))

typedef size_t (*ccurl_callback)(char *_Nullable bytes, size_t size, size_t count, void *_Nullable context);

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

CCURL long ccurl_status(CURL *_Nonnull handle) {
  long status = 0;
  return curl_easy_getinfo(handle, CURLINFO_RESPONSE_CODE, &status) ? 0 : status;
}

/// libcurl's own set-up, which must come before anything else; 0 for success. Call it once.
CCURL CURLcode ccurl_start(void) { return curl_global_init(CURL_GLOBAL_DEFAULT); }
