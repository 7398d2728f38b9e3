// This process: its memory, its limits, and whether it was asked to stop.
#pragma once

#include <csignal>
#include <cstdint>

namespace lapse {

int64_t peak_memory();      ///< bytes: the largest resident size so far
int64_t resident_memory();  ///< bytes: resident now

/// bytes: how much more this process may take before the machine, its control group or its own limit refuses; swap
/// counts.
int64_t available_memory();

/// Where a limit is set on this process's addresses (`ulimit -v`), malloc serves all threads from one arena: each more
/// would reserve 64 MB of them.
void save_addresses();

/// Opens what the caller closed of standard input, output and error (0, 1, 2): else a file of ours would get such a
/// number, and lines for the terminal would be written into it. Writing to an output that was closed stays an error.
void hold_standard_streams();

/// Ends the process without the destructors of global objects: of libtorch's they take as long as a short command.
[[noreturn]] void leave(int status);

/// Beyond a limit of files' sizes (`ulimit -f`) writes fail, with an error of their own, and no signal ends the
/// process.
void outlive_file_limit();

/// After this, the first Ctrl-C (SIGINT), the first SIGTERM and the first SIGHUP (a terminal that is gone) only make
/// `interrupted` true; the second of a kind ends the process.
void catch_interrupts();
bool interrupted();

/// While it lives, Ctrl-C only makes `interrupted` true; afterwards Ctrl-C does what it did before, and those until
/// then are forgotten, but not the other signals. For work that is one piece of many.
class Interruptible {
 public:
  Interruptible();
  ~Interruptible();
  Interruptible(const Interruptible&) = delete;

 private:
  struct sigaction before_ {};
};

/// After this, a pipe that nobody reads any more is an error of what writes to it. Else SIGPIPE ends the process, also
/// one that has something to keep first.
void outlive_readers();
/// Ends the process as SIGPIPE would have, if it came since then.
void end_with_readers();

}  // namespace lapse
