#include "lapse/serve/completion.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>

#include "lapse/core/json.h"
#include "lapse/data/utf8.h"
#include "lapse/serve/failure.h"

namespace lapse {

Completion::Completion(std::shared_ptr<const Opened> opened, CompletionOptions options, std::string id)
    : opened_(std::move(opened)),
      options_(std::move(options)),
      id_(std::move(id)),
      created_(std::time(nullptr)),
      generator_(*opened_->model, options_.sampling, options_.seed),
      stops_(options_.stop) {
  const Vocabulary& vocabulary = opened_->reader.vocabulary();
  if (vocabulary.unit().utf8) require_utf8(options_.prompt, "prompt", kOtherUnits);
  prompt_ = vocabulary.encode(options_.prompt);
  if (vocabulary.bos() >= 0) prompt_.insert(prompt_.begin(), vocabulary.bos());
  if (prompt_.empty()) throw Failure(400, "prompt has no token; give at least one character or word");
  const int64_t context = opened_->model->context(), prompt = std::ssize(prompt_);
  if (context == 0) return;
  if (prompt > context)
    throw Failure(400,
                  fmt::format("the prompt has {} tokens, but this model reads windows of {} in all", prompt, context));
  options_.tokens = std::min(options_.tokens, context - prompt + 1);
}

bool Completion::turn() {
  try {
    if (!cancelled_ && advance()) return true;
  } catch (const std::exception& error) {
    status_ = 500;
    say({{"error", {{"message", message_of(error)}, {"code", 500}}}});
  }
  out_.close();
  return false;
}

// A reader that is behind is looked at again in a moment.
Session::Clock::time_point Completion::due() const {
  using Clock = Session::Clock;
  return out_.full() && !cancelled_ ? Clock::now() + TextBox::kBehind : Clock::time_point::min();
}

// The prompt is read block by block, as others wait for their turn.
bool Completion::advance() {
  if (read_ < prompt_.size()) {
    const size_t end = std::min(prompt_.size(), read_ + std::max<int64_t>(opened_->model->shape().block, 1));
    generator_.feed({prompt_.begin() + static_cast<int64_t>(read_), prompt_.begin() + static_cast<int64_t>(end)});
    read_ = end;
    if (read_ == prompt_.size() && options_.echo)
      text_ = options_.prompt + space_after(options_.prompt, prompt_.back(), opened_->reader.vocabulary());
    if (read_ == prompt_.size() && options_.echo && options_.stream) say(answer(text_, false));
    return true;
  }
  if (written_ < options_.tokens && !stops_.met()) {
    std::string piece = stops_.add(decoder_.add(opened_->reader.vocabulary().decode(generator_.next())));
    if (++written_ == options_.tokens && !stops_.met()) {
      piece += stops_.add(decoder_.end());
      piece += stops_.rest();
    }
    if (options_.stream && !piece.empty()) say(answer(piece, false));
    if (!options_.stream) text_ += piece;
    return true;
  }
  say(answer(options_.stream ? "" : text_, true));
  if (options_.stream) out_.put("data: [DONE]\n\n");
  return false;
}

void Completion::say(const Json& json) {
  const std::string text = to_text(json);
  out_.put(options_.stream ? "data: " + text + "\n\n" : text);
}

Json Completion::answer(const std::string& text, bool last) const {
  Json choice = {{"text", text}, {"index", 0}, {"logprobs", nullptr}, {"finish_reason", nullptr}};
  if (last) choice["finish_reason"] = stops_.met() ? "stop" : "length";
  Json all = {{"id", id_},
              {"object", "text_completion"},
              {"created", created_},
              {"model", opened_->name},
              {"choices", Json::array({std::move(choice)})}};
  if (!last) return all;
  const int64_t prompt = std::ssize(prompt_);
  all["usage"] = {{"prompt_tokens", prompt}, {"completion_tokens", written_}, {"total_tokens", prompt + written_}};
  all["remembered"] = generator_.remembered();
  all["memory_sizes"] = generator_.memory_sizes();
  return all;
}

bool Completion::take(std::string& text) { return out_.take(text); }

}  // namespace lapse
