// One writer at a time for a run's folder.
#pragma once

#include <vector>

#include "lapse/core/file.h"

namespace lapse {

/// Holds a run's folder for this process: what writes to one (`lapse train`, `lapse prune`) takes it first. An advisory
/// lock of the operating system on the file `lock` in the folder, so a process that is killed frees it.
///
/// The holder of the lock is the only writer. So what an interrupted write left behind (`*.partial` of the files that a
/// run has) is removed at the start and at the end.
class RunLock {
 public:
  /// Makes the folder if there is none. Error, with the other's process id, if another process holds it.
  explicit RunLock(const fs::path& folder);
  RunLock(const RunLock&) = delete;
  /// Frees the folder, and removes it again if this lock made it and nothing was written.
  ~RunLock();

 private:
  void take();
  void sweep() const;

  fs::path folder_, file_;
  std::vector<fs::path> made_;  ///< folders that were not there, the innermost first
  int descriptor_ = -1;
};

}  // namespace lapse
