#pragma once
// inflateInit2 is a macro, which Swift does not import.
#include <string.h>
#include <zlib.h>

#define CZLIB static inline __attribute__((unused))

// Starts reading a zlib stream, or with `gzip` a gzip one.
CZLIB int czlib_inflate_start(z_stream *stream, int gzip) {
  memset(stream, 0, sizeof *stream);
  return inflateInit2(stream, gzip ? 15 + 16 : 15);
}
