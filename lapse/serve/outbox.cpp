#include "lapse/serve/outbox.h"

#include <fmt/format.h>

#include <thread>

#include "lapse/core/json.h"

namespace lapse {
namespace {

using namespace std::chrono_literals;

constexpr auto kGather = 8ms;      // the most that a step waits for others: a message each would take a core
constexpr size_t kStep = 256;      // about so many bytes are a step
constexpr auto kSilence = 1000ms;  // after that a comment

std::string message(const std::string& event, const std::string& data) {
  return fmt::format("event: {}\ndata: {}\n\n", event, data);
}

}  // namespace

void TextBox::put(Item item, size_t bytes, bool wake) {
  const std::lock_guard lock(mutex_);
  wake = wake || items_.empty();
  items_.push_back(std::move(item));
  bytes_ += bytes;
  if (wake) some_.notify_one();
}

void TextBox::put(std::string_view text) { put({std::string(text), {}}, text.size(), /*wake=*/true); }

bool TextBox::full() const {
  const std::lock_guard lock(mutex_);
  return bytes_ >= kMost;
}

void TextBox::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  some_.notify_one();
}

std::string TextBox::written(const std::vector<Item>& items) {
  std::string text, steps;
  for (size_t i = 0; i < items.size(); ++i) {
    if (!items[i].step) {
      text += items[i].text;
      continue;
    }
    steps += steps.empty() ? '[' : ',';
    steps += items[i].step();
    if (i + 1 < items.size() && items[i + 1].step) continue;
    text += message("steps", steps += ']');
    steps.clear();
  }
  return text;
}

bool TextBox::take(std::string& text) {
  std::vector<Item> items;
  bool more;
  {
    std::unique_lock lock(mutex_);
    some_.wait_for(lock, 100ms, [this] { return closed_ || !items_.empty(); });
    const auto wait = sent_ + kGather - Clock::now();
    if (!items_.empty() && items_.back().step && bytes_ < kMost && wait > 0ms && !closed_) {
      lock.unlock();
      std::this_thread::sleep_for(wait);
      lock.lock();
    }
    items.swap(items_);
    bytes_ = 0;
    if (!items.empty()) sent_ = Clock::now();
    more = !closed_;
  }
  text = written(items);
  return more;
}

void Outbox::put(const std::string& event, const nlohmann::ordered_json& data) {
  box_.put(message(event, to_text(data)));
}

void Outbox::put_step(std::function<std::string()> json) { box_.put({{}, std::move(json)}, kStep, /*wake=*/false); }

bool Outbox::take(std::string& text) {
  const bool more = box_.take(text);
  if (!text.empty() || TextBox::Clock::now() - box_.sent_ < kSilence) return more;
  text = ": still here\n\n";
  box_.sent_ = TextBox::Clock::now();
  return more;
}

}  // namespace lapse
