#include "lapse/core/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <optional>
#include <streambuf>
#include <system_error>
#include <utility>

#include "lapse/core/error.h"
#include "lapse/core/gzip.h"
#include "lapse/core/read_limit.h"

namespace lapse {
namespace {

// Why `path` could not be used; a missing folder is named, since the system's words do not say what is missing.
std::string reason(const fs::path& path, int error) {
  std::error_code ignored;
  const fs::path folder = path.parent_path();
  const bool no_folder = !folder.empty() && !fs::is_directory(folder, ignored);
  if (no_folder && error == ENOENT) return fmt::format("there is no folder '{}'", folder.string());
  if (no_folder && error == ENOTDIR) return fmt::format("'{}' is not a folder", folder.string());
  return std::generic_category().message(error);
}

[[noreturn]] void fail_on(const char* action, const fs::path& path, int error) {
  fail(fmt::format("cannot {} '{}': {}", action, path.string(), reason(path, error)));
}

fs::file_status status_of(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::none) fail_on("read", path, error.value());
  return status;
}

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(const Descriptor&) = delete;
  ~Descriptor() { close(); }

  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }
  bool ok() const { return fd_ >= 0; }
  bool close() { return !ok() || ::close(std::exchange(fd_, -1)) == 0; }

 private:
  int fd_;
};

// 0, or the errno of what went wrong.
int write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return 0;
}

// A stream buffer over a descriptor that remembers why writing failed, which std::ofstream does not. Large pieces go
// past the buffer.
class DescriptorBuffer : public std::streambuf {
 public:
  explicit DescriptorBuffer(int fd) : fd_(fd) { setp(buffer_.data(), buffer_.data() + buffer_.size()); }
  int error() const { return error_; }

 protected:
  int sync() override {
    const bool written = write_out({pbase(), static_cast<size_t>(pptr() - pbase())});
    setp(buffer_.data(), buffer_.data() + buffer_.size());
    return written ? 0 : -1;
  }

  int_type overflow(int_type c) override {
    if (sync() != 0) return traits_type::eof();
    return traits_type::eq_int_type(c, traits_type::eof()) ? traits_type::not_eof(c)
                                                           : sputc(traits_type::to_char_type(c));
  }

  std::streamsize xsputn(const char* data, std::streamsize size) override {
    if (size < static_cast<std::streamsize>(buffer_.size())) return std::streambuf::xsputn(data, size);
    return sync() == 0 && write_out({data, static_cast<size_t>(size)}) ? size : 0;
  }

 private:
  bool write_out(std::string_view bytes) {
    if (error_ == 0) error_ = write_all(fd_, bytes);
    return error_ == 0;
  }

  int fd_, error_ = 0;
  std::array<char, 1 << 16> buffer_;
};

// Without this a crash of the machine may forget the rename. Some file systems refuse it; the file is whole either way.
void flush_folder(const fs::path& folder) {
  Descriptor handle(::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (handle.ok()) ::fsync(handle.get());
}

// Leaves nothing half done beside the file, whichever way the writing ends.
class Partial {
 public:
  explicit Partial(fs::path path) : path_(std::move(path)) {}
  Partial(const Partial&) = delete;
  ~Partial() {
    if (!path_.empty()) ::unlink(path_.c_str());
  }

  bool rename_to(const fs::path& target) {
    if (::rename(path_.c_str(), target.c_str()) != 0) return false;
    path_.clear();
    return true;
  }

 private:
  fs::path path_;
};

fs::path partial_of(const fs::path& target) { return target.string() + ".partial"; }

// The file `path` beside `target`, locked: of two that write one file the second is refused.
int open_locked(const fs::path& path, const fs::path& target) {
  for (int tries = 1;; ++tries) {
    Descriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666));
    if (!file.ok()) return -1;
    if (::flock(file.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)  // some file systems have no locks
      fail(fmt::format("cannot write '{}': another process is writing it", target.string()));
    struct stat ours, now;
    // The file may have been renamed or removed before the lock was ours; then it is another's. Not for ever: some file
    // systems number files anew.
    const bool same = ::fstat(file.get(), &ours) == 0 && ::stat(path.c_str(), &now) == 0 && ours.st_ino == now.st_ino &&
                      ours.st_dev == now.st_dev;
    if (same || tries == 100) return file.release();
  }
}

// A buffer that grows is there twice while it moves to a larger place.
constexpr int kGrowing = 4;
constexpr size_t kMostOfPipe = 2'000'000'000;

// At most `most` bytes, and where the size is known at most the `part`th part of the free memory.
std::string read_whole(const fs::path& path, size_t most, int part) {
  Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat info;
  if (!file.ok() || ::fstat(file.get(), &info) != 0) fail_on("read", path, errno);
  const bool device = S_ISBLK(info.st_mode) || (S_ISCHR(info.st_mode) && ::isatty(file.get()) == 0);
  if (device) fail(fmt::format("cannot read '{}': it is a device, not a file", path.string()));
  const size_t known = S_ISREG(info.st_mode) ? static_cast<size_t>(info.st_size) : 0;
  ReadLimit limit(path.string(), known > 0 ? part : kGrowing);
  limit.lower(most, "no file of this kind is");
  if (known == 0) limit.lower(kMostOfPipe, "save what comes out of a pipe as a file");
  limit.check(known);
  std::string content;
  size_t length = 0;
  // The size is a hint only: a pipe has none, and a file may still grow. One byte more finds the end without a resize.
  content.resize(known + 1);
  while (true) {
    const ssize_t count = ::read(file.get(), content.data() + length, content.size() - length);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail_on("read", path, errno);
    if (count == 0) break;
    length += static_cast<size_t>(count);
    limit.check(length);
    if (length == content.size()) content.resize(std::max(2 * length, size_t{1} << 16));
  }
  content.resize(length);
  return content;
}

// Renaming onto a link would replace the link, not the file that it stands for, which need not be there yet.
fs::path behind_links(fs::path path) {
  constexpr int kMostLinks = 40;  // as the kernel has it: beyond, they lead in a circle
  std::error_code error;
  for (int i = 0; i < kMostLinks && fs::is_symlink(path, error); ++i)
    path = path.parent_path() / fs::read_symlink(path, error);  // an absolute target takes the place of all
  return path;
}

}  // namespace

std::string for_shell(const fs::path& path) {
  const std::string text = path.string();
  const auto harmless = [](unsigned char c) { return std::isalnum(c) || std::strchr("/._-+=,:@%", c) || c >= 0x80; };
  if (!text.empty() && std::ranges::all_of(text, harmless)) return text;
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

std::string read_file(const fs::path& path, size_t most) { return read_whole(path, most, 1); }

// A text becomes tokens, a byte or more for each of its bytes, and as many numbers of the bytes that a token stands
// for.
std::string read_text_file(const fs::path& path) {
  std::string bytes = read_whole(path, std::numeric_limits<size_t>::max(), 3);
  return is_gzip(bytes) ? inflate_gzip(bytes, path.string()) : bytes;
}

void write_file(const fs::path& path, std::string_view bytes) {
  write_file(path, [bytes](std::ostream& out) { out.write(bytes.data(), static_cast<std::streamsize>(bytes.size())); });
}

void write_file(const fs::path& path, const std::function<void(std::ostream&)>& writer) {
  FileWriter file(path);
  writer(file.out());
  file.finish();
}

void append_to_file(const fs::path& path, std::string_view bytes) {
  Descriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  if (!file.ok()) fail_on("write", path, errno);
  if (const int error = write_all(file.get(), bytes)) fail_on("write", path, error);
  if (!file.close()) fail_on("write", path, errno);
}

struct FileWriter::State {
  explicit State(const fs::path& asked) : path(asked), target(behind_links(asked)) {
    std::error_code ignored;
    const fs::file_status status = fs::status(path, ignored);
    if (fs::is_directory(status)) fail_on("write", path, EISDIR);
    // Renaming onto /dev/null or a pipe would put a plain file in its place.
    const bool whole = !fs::is_other(status);
    file.emplace(whole ? open_locked(partial_of(target), target)
                       : ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
    if (!file->ok()) fail_on("write", path, errno);
    if (whole) partial.emplace(partial_of(target));
    if (partial && ::ftruncate(file->get(), 0) != 0) fail_on("write", path, errno);  // what a crash has left
    buffer.emplace(file->get());
    stream.rdbuf(&*buffer);
    stream.clear();
  }

  const fs::path path, target;
  std::optional<Descriptor> file;
  std::optional<Partial> partial;  // removed, if it is, before the file is closed, and with that unlocked
  std::optional<DescriptorBuffer> buffer;
  std::ostream stream{nullptr};
};

FileWriter::FileWriter(const fs::path& path) : state_(std::make_unique<State>(path)) {}
FileWriter::~FileWriter() = default;

std::ostream& FileWriter::out() { return state_->stream; }

void FileWriter::check() const {
  if (state_->buffer->error()) fail_on("write", state_->path, state_->buffer->error());
  if (!state_->stream) fail(fmt::format("cannot write '{}': producing its content failed", state_->path.string()));
}

void FileWriter::finish() {
  auto& [path, target, file, partial, buffer, stream] = *state_;
  stream.flush();
  check();
  if (partial) {  // renamed while it is locked
    if (::fsync(file->get()) != 0 || !partial->rename_to(target)) fail_on("write", path, errno);
    flush_folder(target.parent_path());
  }
  if (!file->close()) fail_on("write", path, errno);
}

struct FileLock::State {
  Descriptor file;
  Partial made;  // removed before the file is closed, and with that unlocked
};

FileLock::FileLock(const fs::path& path) {
  const fs::path target = behind_links(path), lock = partial_of(target.string() + ".lock");
  const int file = open_locked(lock, target);
  if (file < 0) fail_on("write", path, errno);
  state_.reset(new State{Descriptor(file), Partial(lock)});
}

FileLock::~FileLock() = default;

bool is_folder(const fs::path& path) { return fs::is_directory(status_of(path)); }
bool is_file(const fs::path& path) { return fs::is_regular_file(status_of(path)); }
bool is_there(const fs::path& path) { return fs::exists(status_of(path)); }

void make_folder(const fs::path& path) {
  std::error_code error, ignored;
  fs::create_directories(path, error);
  if (fs::is_directory(path, ignored)) return;
  fail(fmt::format("cannot make the folder '{}': {}", path.string(),
                   fs::exists(path, ignored) ? "a file of this name is in the way" : error.message()));
}

}  // namespace lapse
