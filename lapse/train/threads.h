// How many threads tensors are computed with.
#pragma once

#include <cstdint>

namespace lapse {

/// So many from now on; 0: leave it at all cores. Error for many times more than there are cores: threads that wait for
/// one another would take hours for what a few do in a second. Error where there is no memory to start them, or hardly
/// any to compute with.
void use_threads(int64_t count);

}  // namespace lapse
