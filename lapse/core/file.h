// Files: whole reads, gzip, and writes that are never seen half done.
#pragma once

#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <ostream>
#include <string>
#include <string_view>

namespace lapse {

namespace fs = std::filesystem;

/// The most bytes of a file that people write, or that is kept beside a run.
constexpr size_t kSmallFile = 16'000'000;

/// The whole file, or pipe. Error names the path and the system's reason (missing, a directory, no permission), or says
/// that it is a device, or larger than `most` bytes, or too large for the memory of this machine: also for what has no
/// end.
std::string read_file(const fs::path& path, size_t most = std::numeric_limits<size_t>::max());

/// As read_file, but a gzip file (recognised by its first two bytes, not its name; several members allowed) is
/// inflated. A truncated or damaged gzip file is an Error, never a shorter text.
std::string read_text_file(const fs::path& path);

/// Writes beside `path` (path + ".partial"), flushes to disk and renames: readers see the old file or the new one.
/// Error if another writes the same file. Any failure (full disk too) is an Error that names the path; the old file
/// stays and nothing is left beside it.
void write_file(const fs::path& path, std::string_view bytes);
void write_file(const fs::path& path, const std::function<void(std::ostream&)>& writer);

/// The same for what is made piece by piece: out() takes it, finish() flushes, renames and tells of errors. Without
/// finish() nothing is left.
class FileWriter {
 public:
  explicit FileWriter(const fs::path& path);
  ~FileWriter();

  std::ostream& out();
  /// Error if one of the pieces could not be written.
  void check() const;
  void finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Holds a file for this process, from reading it until it is written anew: of two that do so, the second is refused.
/// While it lives there is an empty file beside `path` (path + ".lock.partial").
class FileLock {
 public:
  /// Error if another process holds the file, or its folder cannot be written to.
  explicit FileLock(const fs::path& path);
  ~FileLock();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Adds to the end of a file that stays readable meanwhile, such as a log. Makes it if there is none. After an Error a
/// part of the bytes may be there.
void append_to_file(const fs::path& path, std::string_view bytes);

/// What a path names; false if there is nothing. Error, with the system's reason, where that cannot be told (a loop of
/// links, a name that is too long, a folder that may not be entered).
bool is_folder(const fs::path& path);
bool is_file(const fs::path& path);
bool is_there(const fs::path& path);

/// The path as a word of a command that a message proposes: in quotes where a shell would take it for more.
std::string for_shell(const fs::path& path);

/// Creates a folder and its parents; Error where it cannot, or where a file is in the way.
void make_folder(const fs::path& path);

}  // namespace lapse
