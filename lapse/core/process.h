// This process: its memory, its limits, and whether it was asked to stop.
#pragma once

#include <cstdint>

namespace lapse {

int64_t peak_memory();      ///< bytes: the largest resident size so far
int64_t resident_memory();  ///< bytes: resident now

/// bytes: how much more this process may take before the machine, its control group or its own limit refuses; swap
/// counts.
int64_t available_memory();

/// Makes OpenMP's threads sleep soon where they wait for one another, by starting the program anew (`argv`) with
/// GOMP_SPINCOUNT set, which is read before main. Spinning, the default, makes a run 5 times slower as soon as another
/// process wants a core. Does nothing if the user has chosen (GOMP_SPINCOUNT or OMP_WAIT_POLICY). Also lets malloc ask
/// for huge pages and keep large blocks that were freed for the next update (4 GB at
/// most), unless GLIBC_TUNABLES is set: the resident size then falls later than what is in use.
void wait_politely(char** argv);

/// Opens what the caller closed of standard input, output and error (0, 1, 2): else a file of ours would get such a
/// number, and lines for the terminal would be written into it. Writing to an output that was closed stays an error.
void hold_standard_streams();

/// After this, the first Ctrl-C (SIGINT) or SIGTERM only makes `interrupted` true; the second ends the process.
void catch_interrupts();
bool interrupted();

/// While it lives, the first Ctrl-C only makes `interrupted` true; afterwards that is false again, and Ctrl-C ends the
/// process. For work that is one piece of many.
class Interruptible {
 public:
  Interruptible();
  ~Interruptible();
  Interruptible(const Interruptible&) = delete;
};

}  // namespace lapse
