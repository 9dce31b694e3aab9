#pragma once
// Macros with casts, which Swift cannot see.
#include <expat.h>

#define CEXPAT static inline __attribute__((unused))

// Ends parsing for good, from within a handler.
CEXPAT void cexpat_stop(XML_Parser parser) { XML_StopParser(parser, XML_FALSE); }

// Parses the whole document; 1 for success.
CEXPAT int cexpat_parse_all(XML_Parser parser, const char *bytes, int count) {
  return XML_Parse(parser, bytes, count, XML_TRUE) == XML_STATUS_OK;
}
