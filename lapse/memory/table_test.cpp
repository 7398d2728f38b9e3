#include "lapse/memory/table.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
