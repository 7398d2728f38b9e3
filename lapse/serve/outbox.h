// Between who computes and who sends: text as it comes, for one reader, in bounded memory.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace lapse {

class TextBox {
 public:
  using Clock = std::chrono::steady_clock;

  void put(std::string_view text);
  /// The reader is behind: who computes must wait.
  bool full() const;
  /// Nothing more will come.
  void close();
  /// Waits for text, at most 100 ms, and for more of it, a few milliseconds. False: closed, and that was all.
  bool take(std::string& text);

  constexpr static std::chrono::milliseconds kBehind{5};  ///< after which who waits for a reader looks again
  constexpr static size_t kMost = 32 << 10;  ///< bytes that wait: some tokens, so that what is seen is what happens

 private:
  friend class Outbox;
  struct Item {
    std::string text;                   ///< or
    std::function<std::string()> step;  ///< of the event "steps"
  };
  void put(Item item, size_t bytes, bool wake);
  static std::string written(const std::vector<Item>& items);

  mutable std::mutex mutex_;
  std::condition_variable some_;
  std::vector<Item> items_;
  size_t bytes_ = 0;
  bool closed_ = false;
  Clock::time_point sent_ = Clock::now();
};

/// Server-sent events.
class Outbox {
 public:
  void put(const std::string& event, const nlohmann::ordered_json& data);
  /// One step of the event "steps": those that wait together are sent as one list. `json` is called by who takes it,
  /// so that who computes need not write.
  void put_step(std::function<std::string()> json);
  bool full() const { return box_.full(); }
  void close() { box_.close(); }
  /// TextBox::take. Now and then a comment, so that a connection that is gone is found.
  bool take(std::string& text);

 private:
  TextBox box_;
};

}  // namespace lapse
