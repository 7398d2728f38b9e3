// TensorBoard event files, written without torch or TensorFlow.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "lapse/core/file.h"

namespace lapse {

/// CRC-32C (Castagnoli), with which the records are checked.
uint32_t crc32c(std::string_view bytes);

/// Appends scalars to one new file FOLDER/events.out.tfevents.<unix time>.<host>.<pid>. TensorBoard reads a folder's
/// files in the order of their names, so the time is moved past that of every file already there. Records are framed as
/// TensorBoard expects: u64 length, masked CRC-32C of it, the Event message, masked CRC-32C of that.
class TensorBoard {
 public:
  /// `first_step`: TensorBoard drops what earlier files of this folder say of steps >= first_step (a resumed run), by a
  /// SessionLog START event.
  TensorBoard(const fs::path& folder, int64_t first_step);

  /// Written by the next flush.
  void scalar(const std::string& tag, int64_t step, double value);
  void flush();  ///< Error if the disk refuses, with the cause

 private:
  void write(const std::string& message);
  fs::path path_;
  std::string waiting_;  // for flush
};

}  // namespace lapse
