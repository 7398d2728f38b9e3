// What a session has seen, as the page of `lapse inspect`: read once more, from empty memory.
#pragma once

#include <atomic>
#include <memory>

#include "lapse/serve/engine.h"
#include "lapse/serve/outbox.h"

namespace lapse {

class Export : public Job {
 public:
  /// As HttpReply::stream: the page, all at once when it is made.
  bool take(std::string& text) { return page_.take(text); }
  int status() const { return status_; }  ///< of the whole
  void cancel() { cancelled_ = true; }
  bool turn() override;

 protected:
  /// One step; the page after the last, else "".
  virtual std::string advance() = 0;

 private:
  TextBox page_;
  std::atomic<bool> cancelled_ = false;
  std::atomic<int> status_ = 200;
};

constexpr int64_t kExported = 5000;  ///< the newest tokens, or the first steps, at most

/// Error if there is nothing yet.
std::shared_ptr<Export> export_of(Subject& subject);

}  // namespace lapse
