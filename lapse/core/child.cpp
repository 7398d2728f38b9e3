#include "lapse/core/child.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <new>
#include <stdexcept>
#include <system_error>

#include "lapse/core/error.h"

namespace lapse {
namespace {

// What comes through the pipe begins with one of these; with neither, the child did not end well.
constexpr char kResult = '=', kNoMemory = 'm', kFailure = '!';

void write_all(int file, const std::string& bytes) {
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t count = write(file, bytes.data() + done, bytes.size() - done);
    if (count < 0 && errno != EINTR) return;
    if (count > 0) done += count;
  }
}

/// Nothing where reading fails.
std::string read_all(int file) {
  std::string bytes;
  char part[1 << 16];
  while (true) {
    const ssize_t count = read(file, part, sizeof part);
    if (count == 0) return bytes;
    if (count < 0 && errno != EINTR) return "";
    if (count > 0) bytes.append(part, count);
  }
}

/// In the child.
std::string told(const std::function<std::string()>& make) {
  try {
    return kResult + make();
  } catch (const std::bad_alloc&) {
    return {kNoMemory};
  } catch (const std::system_error& error) {
    const bool thread = error.code() == std::errc::resource_unavailable_try_again;
    return thread ? std::string{kNoMemory} : kFailure + std::string(error.what());
  } catch (const std::exception& error) {
    return kFailure + std::string(error.what());
  }
}

[[noreturn]] void be_child(int out, const std::function<std::string()>& make) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const int nowhere = open("/dev/null", O_WRONLY);  // the parent says in one line how it ended
  if (nowhere >= 0) dup2(nowhere, STDERR_FILENO);
  write_all(out, told(make));
  _exit(0);
}

}  // namespace

std::string in_child(const std::function<std::string()>& make) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) fail(fmt::format("cannot make a pipe: {}", std::strerror(errno)));
  const pid_t child = fork();
  if (child < 0) {
    const int why = errno;
    close(ends[0]), close(ends[1]);
    if (why == ENOMEM) throw std::bad_alloc();
    fail(fmt::format("cannot start a process: {}", std::strerror(why)));
  }
  if (child == 0) be_child(ends[1], make);
  close(ends[1]);
  const std::string said = read_all(ends[0]);
  close(ends[0]);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  if (said.empty() || status != 0)
    throw std::runtime_error("its process was ended in the middle of the work, most likely for want of memory");
  if (said[0] == kNoMemory) throw std::bad_alloc();
  if (said[0] == kFailure) throw std::runtime_error(said.substr(1));
  return said.substr(1);
}

}  // namespace lapse
