#pragma once
#include <stddef.h>

// What reading a whole JPEG with libjpeg came to, from good to bad; the worst holds.
typedef enum {
  CJPEG_WHOLE,
  CJPEG_ODD,             // whole, but libjpeg warned of something that no pixel depends on
  CJPEG_GARBLED,         // data in between make no sense: some pixels are made up
  CJPEG_CUT_SHORT,       // the data end before the picture does
  CJPEG_REFUSED,         // libjpeg gave up
  CJPEG_TOO_MANY_SCANS
} cjpeg_outcome;

typedef struct {
  cjpeg_outcome outcome;
  // About the first row that is hurt, of `height`, in pixels of the picture.
  unsigned row;
  unsigned height;
  // libjpeg's text of what decided the outcome; empty where there was nothing.
  char message[200];
} cjpeg_finding;

// Decodes a JPEG and throws the pixels away, noting what libjpeg complains of.
cjpeg_finding cjpeg_diagnose(const unsigned char *bytes, size_t length, int max_scans);
