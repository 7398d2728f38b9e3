#include "lapse/serve/outbox.h"

#include <fmt/format.h>

#include <thread>

namespace lapse {
namespace {

using namespace std::chrono_literals;

constexpr auto kGather = 8ms;      // the most that a step waits for others: a message each would take a core
constexpr auto kSilence = 1000ms;  // after that a comment

std::string message(const std::string& event, const std::string& data) {
  return fmt::format("event: {}\ndata: {}\n\n", event, data);
}

}  // namespace

void TextBox::put(std::string_view text) {
  const std::lock_guard lock(mutex_);
  finish_steps();
  ready_ += text;
  some_.notify_one();
}

bool TextBox::full() const {
  const std::lock_guard lock(mutex_);
  return ready_.size() + steps_.size() >= kMost;
}

void TextBox::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  some_.notify_one();
}

void TextBox::finish_steps() {
  if (!steps_.empty()) ready_ += message("steps", "[" + steps_ + "]");
  steps_.clear();
}

bool TextBox::take(std::string& text) {
  std::unique_lock lock(mutex_);
  const auto there = [this] { return closed_ || !ready_.empty() || !steps_.empty(); };
  some_.wait_for(lock, 100ms, there);
  if (const auto wait = sent_ + kGather - Clock::now(); !steps_.empty() && wait > 0ms && !closed_) {
    lock.unlock();
    std::this_thread::sleep_for(wait);
    lock.lock();
  }
  finish_steps();
  text = std::move(ready_);
  ready_.clear();
  if (!text.empty()) sent_ = Clock::now();
  return !closed_;
}

void Outbox::put(const std::string& event, const nlohmann::ordered_json& data) {
  box_.put(message(event, data.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace)));
}

void Outbox::put_step(const std::string& json) {
  const std::lock_guard lock(box_.mutex_);
  const bool first = box_.steps_.empty() && box_.ready_.empty();
  if (!box_.steps_.empty()) box_.steps_ += ',';
  box_.steps_ += json;
  if (first) box_.some_.notify_one();
}

bool Outbox::take(std::string& text) {
  const bool more = box_.take(text);
  if (!text.empty() || TextBox::Clock::now() - box_.sent_ < kSilence) return more;
  text = ": still here\n\n";
  box_.sent_ = TextBox::Clock::now();
  return more;
}

}  // namespace lapse
