// POST /v1/completions: a text gone on with, in one answer or piece by piece.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "lapse/read/generator.h"
#include "lapse/serve/engine.h"
#include "lapse/serve/events.h"
#include "lapse/serve/outbox.h"
#include "lapse/serve/stops.h"

namespace lapse {

struct CompletionOptions {
  int64_t run = 0;
  std::string prompt;
  int64_t tokens = 16;
  SamplingOptions sampling;
  uint64_t seed = 1;
  bool stream = false, echo = false;
  std::vector<std::string> stop;  ///< the text ends before the first of them
};

class Completion : public Job {
 public:
  /// Error if the prompt has no token, or does not fit the model's window.
  Completion(std::shared_ptr<const Opened> opened, CompletionOptions options, std::string id);

  bool turn() override;
  Session::Clock::time_point due() const override;
  void cancel() { cancelled_ = true; }    ///< from any thread
  int status() const { return status_; }  ///< 500 where it failed; final once `take` has returned false
  /// More of the answer; as HttpReply::stream. From any one thread.
  bool take(std::string& text);

 private:
  bool advance();
  void say(const Json& json);
  Json answer(const std::string& text, bool last) const;

  std::shared_ptr<const Opened> opened_;
  CompletionOptions options_;
  std::string id_;
  int64_t created_;
  Generator generator_;
  std::vector<int32_t> prompt_;
  size_t read_ = 0;  // of the prompt
  int64_t written_ = 0;
  Decoder decoder_;
  Stops stops_;
  std::string text_;
  std::atomic<bool> cancelled_ = false;
  std::atomic<int> status_ = 200;
  TextBox out_;
};

}  // namespace lapse
