#pragma once
#include <vips/vips.h>

#include "pipeline_plugin.h"
