// The safetensors format, without torch: named tensors and string metadata in one file. No pickle, nothing executable.
// Layout: u64 header size, JSON header {"name": {"dtype", "shape", "data_offsets"}, "__metadata__": {..}}, data.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "lapse/core/error.h"
#include "lapse/core/file.h"

namespace lapse {

/// One tensor's place in a file: dtype in the format's names ("F32", "F64", "BF16", "F16", "I64", "I32", "U8", "BOOL",
/// ...), row-major, little-endian.
struct TensorEntry {
  std::string dtype;
  std::vector<int64_t> shape;
  std::string_view bytes;  ///< product(shape) * size of dtype bytes; owned by whoever made the entry
};

/// Size in bytes of one element; Error for a dtype that the format does not know.
size_t dtype_size(const std::string& dtype);

/// A file that was read, and is not what was written.
class DamagedFile : public Error {
 public:
  using Error::Error;
};

/// A file read whole and checked: header is JSON of the right form, every tensor's bytes lie inside the file, have the
/// size that dtype and shape give, do not overlap, and cover the data without gaps. If the metadata carries Lapse's
/// checksum it must agree. Any violation is a DamagedFile "PATH: what is wrong (truncated or altered file)".
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const fs::path& path);
  SafetensorsFile(fs::path path, std::string content);  ///< of what was read from there
  SafetensorsFile(const SafetensorsFile&) = delete;

  const std::map<std::string, TensorEntry>& tensors() const { return tensors_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  /// Error, with the nearest name, if there is no such tensor / key.
  const TensorEntry& tensor(const std::string& name) const;
  const std::string& meta(const std::string& key) const;
  const fs::path& path() const { return path_; }
  uint32_t checksum() const;  ///< CRC-32 of the whole file: tells one from another

 private:
  fs::path path_;
  std::string content_;
  std::map<std::string, TensorEntry> tensors_;
  std::map<std::string, std::string> metadata_;
};

/// Writes atomically (core/file.h). Adds metadata "lapse.checksum": CRC-32 of the data and of the rest of the header,
/// so that a reader notices a changed byte anywhere. Data begin 8-byte aligned.
void write_safetensors(const fs::path& path, const std::map<std::string, TensorEntry>& tensors,
                       const std::map<std::string, std::string>& metadata);

}  // namespace lapse
