#include "lapse/train/run_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "lapse/core/error.h"
#include "lapse/train/run_folder.h"

namespace lapse {
namespace {

[[noreturn]] void cannot(const char* action, const fs::path& path, int error) {
  fail(fmt::format("cannot {} '{}': {}", action, path.string(), std::generic_category().message(error)));
}

/// Whether `path` still is the file that is open: its last holder may have removed it in between.
bool is_same_file(int descriptor, const fs::path& path) {
  struct stat opened {
  }, now{};
  return ::fstat(descriptor, &opened) == 0 && ::stat(path.c_str(), &now) == 0 && opened.st_ino == now.st_ino &&
         opened.st_dev == now.st_dev;
}

/// The beginning of it, without line ends.
std::string content_of(int descriptor) {
  char text[32];
  const ssize_t size = ::pread(descriptor, text, sizeof text, 0);
  std::string content(text, static_cast<size_t>(std::max<ssize_t>(size, 0)));
  while (!content.empty() && content.back() == '\n') content.pop_back();
  return content;
}

bool is_number(const std::string& text) { return text.find_first_not_of("0123456789") == std::string::npos; }

/// "process 123", as the holder wrote it.
std::string holder(int descriptor) {
  const std::string id = content_of(descriptor);
  return id.empty() || !is_number(id) ? "another process" : "process " + id;
}

/// Of what lapse itself writes into a run; others may have files there too.
bool is_leftover(const fs::path& path) {
  if (path.extension() != ".partial") return false;
  const fs::path whole = path.parent_path() / path.stem();
  const auto own = files_beside_checkpoints(path.parent_path());
  return update_of(whole) >= 0 || std::ranges::find(own, whole) != own.end();
}

}  // namespace

RunLock::RunLock(const fs::path& folder) : folder_(folder), file_(folder / "lock") {
  std::error_code ignored;
  for (fs::path path = fs::absolute(folder, ignored).lexically_normal(); !fs::exists(path, ignored);
       path = path.parent_path()) {
    if (path.has_filename()) made_.push_back(path);
    if (path == path.parent_path()) break;
  }
  make_folder(folder);
  take();
  sweep();
}

RunLock::~RunLock() {
  sweep();
  ::unlink(file_.c_str());  // before it is freed: see is_same_file
  ::close(descriptor_);
  for (const fs::path& path : made_)
    if (::rmdir(path.c_str()) != 0) break;  // refused unless it is empty
}

void RunLock::take() {
  while (true) {
    descriptor_ = ::open(file_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (descriptor_ < 0) cannot("write", file_, errno);
    if (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
      const int error = errno;
      const std::string other = holder(descriptor_);
      ::close(descriptor_);
      if (error != EWOULDBLOCK) cannot("lock", file_, error);
      fail(fmt::format("{}: {} is writing to this run; wait for it to end, or give another folder", folder_.string(),
                       other));
    }
    if (is_same_file(descriptor_, file_)) break;
    ::close(descriptor_);
  }
  if (!is_number(content_of(descriptor_))) {
    ::close(descriptor_);
    fail(fmt::format(
        "{}: a file of this name locks a run while it is written, and lapse did not write this one; move it, "
        "or give another folder",
        file_.string()));
  }
  const std::string id = fmt::format("{}\n", ::getpid());
  if (::ftruncate(descriptor_, 0) != 0 || ::pwrite(descriptor_, id.data(), id.size(), 0) < 0) {
    // The lock holds without the number. A full disk is reported by the first write of the run itself.
  }
}

void RunLock::sweep() const {
  for (const fs::path& folder : {folder_, checkpoints_folder(folder_)}) {
    std::error_code error;
    for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error))
      if (is_leftover(entry->path())) ::unlink(entry->path().c_str());
  }
}

}  // namespace lapse
