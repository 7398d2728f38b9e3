// A library to preload (LD_PRELOAD): lets one system call on a file fail, or each from it on. It stands between the
// program and the C library, so whatever writes is met: core/file, SentencePiece's trainer, TensorBoard's events.
//
//   FAULTS_UNDER  only files under this folder count
//   FAULTS_LOG    each call is added to this file, one line "CALL PATH"
//   FAULTS_AT     which one fails, counted from 1 over all calls; 0 is none
//   FAULTS_ERROR  its errno; 0 makes a short write or read: half of what was asked for, at least one byte
//   FAULTS_LAST   set: those of its kind after it fail too, as on a disk that is full
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

struct Plan {
  std::string under = text("FAULTS_UNDER"), log = text("FAULTS_LOG");
  long at = std::atol(text("FAULTS_AT")), error = std::atol(text("FAULTS_ERROR"));
  bool last = std::getenv("FAULTS_LAST") != nullptr;

  static const char* text(const char* name) {
    const char* value = std::getenv(name);
    return value ? value : "";
  }
};

const Plan& plan() {
  static const Plan plan;
  return plan;
}

std::string path_of(int descriptor) {
  char path[PATH_MAX];
  const std::string link = "/proc/self/fd/" + std::to_string(descriptor);
  const ssize_t size = ::readlink(link.c_str(), path, sizeof path);
  return size > 0 && path[0] == '/' ? std::string(path, static_cast<size_t>(size)) : "";  // not of pipes
}

std::string folder() {
  char path[PATH_MAX];
  return ::getcwd(path, sizeof path) ? path : "";
}

void note(const char* call, const std::string& path) {
  if (plan().log.empty()) return;
  const std::string line = std::string(call) + " " + path + "\n";
  // By number: the calls of this file itself are not to be counted.
  const long log = ::syscall(SYS_openat, AT_FDCWD, plan().log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (log < 0) return;
  ::syscall(SYS_write, log, line.data(), line.size());
  ::syscall(SYS_close, log);
}

/// Whether this call is to fail (or to be short, where error is 0).
bool fails(const char* call, std::string path) {
  static std::atomic<long> count{0};
  static std::atomic<bool> begun{false};
  static std::string kind;
  const int kept = errno;
  if (!path.empty() && path[0] != '/') path = folder() + "/" + path;
  if (plan().under.empty() || path.rfind(plan().under, 0) != 0) return errno = kept, false;
  note(call, path);
  errno = kept;
  const bool now = ++count == plan().at;
  if (now) kind = call, begun = true;
  if (!now && !(plan().last && begun && kind == call)) return false;
  errno = static_cast<int>(plan().error);
  return true;
}

template <class Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

bool writes(int flags) { return (flags & O_ACCMODE) != O_RDONLY; }

int open_file(const char* name, const char* path, int flags, mode_t mode) {
  if (fails(writes(flags) ? "open" : "open-to-read", path)) return -1;
  return next<int(const char*, int, mode_t)>(name)(path, flags, mode);
}

FILE* open_stream(const char* name, const char* path, const char* mode) {
  if (fails(std::strpbrk(mode, "wa+") ? "open" : "open-to-read", path)) return nullptr;
  return next<FILE*(const char*, const char*)>(name)(path, mode);
}

size_t half(size_t size) { return size > 1 ? size / 2 : size; }

}  // namespace

extern "C" {

int open(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const auto mode = static_cast<mode_t>(va_arg(rest, unsigned));
  va_end(rest);
  return open_file("open", path, flags, mode);
}

int open64(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const auto mode = static_cast<mode_t>(va_arg(rest, unsigned));
  va_end(rest);
  return open_file("open64", path, flags, mode);
}

FILE* fopen(const char* path, const char* mode) { return open_stream("fopen", path, mode); }
FILE* fopen64(const char* path, const char* mode) { return open_stream("fopen64", path, mode); }

ssize_t write(int descriptor, const void* data, size_t size) {
  static const auto real = next<ssize_t(int, const void*, size_t)>("write");
  if (!fails("write", path_of(descriptor))) return real(descriptor, data, size);
  return plan().error ? -1 : real(descriptor, data, half(size));
}

ssize_t writev(int descriptor, const struct iovec* parts, int count) {
  static const auto real = next<ssize_t(int, const struct iovec*, int)>("writev");
  if (!fails("write", path_of(descriptor))) return real(descriptor, parts, count);
  return plan().error ? -1 : real(descriptor, parts, 1);
}

ssize_t read(int descriptor, void* data, size_t size) {
  static const auto real = next<ssize_t(int, void*, size_t)>("read");
  if (!fails("read", path_of(descriptor))) return real(descriptor, data, size);
  return plan().error ? -1 : real(descriptor, data, half(size));
}

int fsync(int descriptor) {
  static const auto real = next<int(int)>("fsync");
  return fails("fsync", path_of(descriptor)) ? -1 : real(descriptor);
}

int close(int descriptor) {
  static const auto real = next<int(int)>("close");
  const int flags = ::fcntl(descriptor, F_GETFL);
  const bool failed = flags >= 0 && writes(flags) && fails("close", path_of(descriptor));
  const int error = errno, result = real(descriptor);  // closed either way, as the kernel does
  if (failed) errno = error;
  return failed ? -1 : result;
}

int rename(const char* from, const char* to) {
  static const auto real = next<int(const char*, const char*)>("rename");
  return fails("rename", to) ? -1 : real(from, to);
}

int unlink(const char* path) {
  static const auto real = next<int(const char*)>("unlink");
  return fails("unlink", path) ? -1 : real(path);
}

int remove(const char* path) {
  static const auto real = next<int(const char*)>("remove");
  return fails("unlink", path) ? -1 : real(path);
}

int mkdir(const char* path, mode_t mode) {
  static const auto real = next<int(const char*, mode_t)>("mkdir");
  return fails("mkdir", path) ? -1 : real(path, mode);
}

int ftruncate(int descriptor, off_t size) {
  static const auto real = next<int(int, off_t)>("ftruncate");
  return fails("truncate", path_of(descriptor)) ? -1 : real(descriptor, size);
}

int truncate(const char* path, off_t size) {
  static const auto real = next<int(const char*, off_t)>("truncate");
  return fails("truncate", path) ? -1 : real(path, size);
}

void* mmap(void* address, size_t size, int protection, int flags, int descriptor, off_t offset) {
  static const auto real = next<void*(void*, size_t, int, int, int, off_t)>("mmap");
  if (descriptor >= 0 && fails("mmap", path_of(descriptor))) return MAP_FAILED;
  return real(address, size, protection, flags, descriptor, offset);
}

int flock(int descriptor, int operation) {
  static const auto real = next<int(int, int)>("flock");
  return fails("flock", path_of(descriptor)) ? -1 : real(descriptor, operation);
}

}  // extern "C"
