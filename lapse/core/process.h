// This process: its memory, and the wish to stop it.
#pragma once

#include <cstdint>

namespace lapse {

int64_t peak_memory();      ///< bytes: the largest resident size so far
int64_t resident_memory();  ///< bytes: resident now

/// After this, the first Ctrl-C (SIGINT) or SIGTERM only makes `interrupted` true; the second ends the process.
void catch_interrupts();
bool interrupted();

}  // namespace lapse
