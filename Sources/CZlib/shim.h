#pragma once
// inflateInit2 is a macro, which Swift does not import.
#include <string.h>
#include <zlib.h>

#define CZLIB static inline __attribute__((unused))

// Starts reading a stream; window_bits as zlib has them: 15 for a zlib stream, 31 for a gzip one, -15 for a raw one.
CZLIB int czlib_inflate_start(z_stream *stream, int window_bits) {
  memset(stream, 0, sizeof *stream);
  return inflateInit2(stream, window_bits);
}
