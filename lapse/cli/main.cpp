// The command `lapse`.
#include <c10/util/Exception.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <iostream>
#include <new>
#include <string>
#include <system_error>

#include "lapse/cli/program.h"
#include "lapse/core/process.h"

namespace {

int report(const std::string& message, int status = 1) {
  std::cout.flush();
  std::cerr << "lapse: error: " << message << '\n';
  return status;
}

/// What the system said of a write that failed, where errno still has it: it may be that of a later call.
std::string why_not_written() {
  constexpr int kOfWrites[] = {ENOSPC, EDQUOT, EFBIG, EBADF, EIO};
  if (std::ranges::find(kOfWrites, errno) == std::end(kOfWrites)) return " (is the disk full?)";
  return ": " + std::generic_category().message(errno);
}

int run(int argc, char** argv) {
  lapse::Program program;
  const lapse::Action action = program.parse(argc, argv);
  const int status = action();
  if (!std::cout.flush()) return report("cannot write to standard output" + why_not_written());
  return status;
}

/// The exit status; an error is one line on stderr.
int guarded(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const lapse::Misuse& error) {
    return report(error.what(), 2);
  } catch (const lapse::Error& error) {
    return report(error.what());
  } catch (const std::filesystem::filesystem_error& error) {
    return report("cannot use '" + error.path1().string() + "': " + error.code().message());
  } catch (const c10::Error& error) {
    return report(error.what_without_backtrace());
  } catch (const std::bad_alloc&) {
    return report("out of memory (in training, a smaller train.batch or train.block, or more train.parts, takes less)");
  } catch (const std::exception& error) {
    return report(error.what());
  }
}

}  // namespace

int main(int argc, char** argv) {
  lapse::hold_standard_streams();
  lapse::save_addresses();
  lapse::outlive_file_limit();
  lapse::leave(guarded(argc, argv));
}
