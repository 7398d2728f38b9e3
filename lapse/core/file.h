// Files: whole reads, gzip, and writes that are never seen half done.
#pragma once

#include <filesystem>
#include <functional>
#include <ostream>
#include <string>
#include <string_view>

namespace lapse {

namespace fs = std::filesystem;

/// The whole file. Error names the path and the system's reason (missing, a directory, no permission).
std::string read_file(const fs::path& path);

/// As read_file, but a gzip file (recognised by its first two bytes, not its name; several members allowed) is
/// inflated. A truncated or damaged gzip file is an Error, never a shorter text.
std::string read_text_file(const fs::path& path);

/// Writes beside `path` (path + ".partial"), flushes to disk and renames: readers see the old file or the new one.
/// Any failure (full disk too) is an Error that names the path; the old file stays and nothing is left beside it.
void write_file(const fs::path& path, std::string_view bytes);
void write_file(const fs::path& path, const std::function<void(std::ostream&)>& writer);

/// Creates a folder and its parents; Error where it cannot, or where a file is in the way.
void make_folder(const fs::path& path);

}  // namespace lapse
