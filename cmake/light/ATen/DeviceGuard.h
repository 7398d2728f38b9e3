// Found before libtorch's, and nothing where LAPSE_LIGHT_ATEN is defined (lapse/ops/aten.h).
#ifndef LAPSE_LIGHT_ATEN
#include_next <ATen/DeviceGuard.h>
#endif
