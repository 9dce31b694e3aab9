#pragma once
// libvips' C interface is variadic and full of macros, which Swift does not import. Everything used is wrapped here, by name.
#include <vips/vips.h>
