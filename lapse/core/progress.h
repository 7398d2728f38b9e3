// A progress bar with rate and time left on a terminal, plain lines elsewhere.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace lapse {

/// What a line tells. `total` 0: unknown. The rate counts from `first`.
struct ProgressState {
  std::string title, unit, note;
  int64_t total = 0, first = 0, done = 0;
  double seconds = 0;  ///< since `first`
};

/// The line of a state: with a bar, and cut to `columns`, if `columns` is positive; else plain and whole.
std::string progress_line(const ProgressState& state, int columns);

/// Writes to stderr. On a terminal: one line redrawn at most 10 times a second,
///   train  43% [########            ]  860/2000 updates  3.4/s  eta 5:32  loss 2.31 bpb
/// Elsewhere: a line without the bar at most every `plain_seconds`, and the last. Silent if `quiet`.
class Progress {
 public:
  /// `total` 0: unknown (no bar, no time left). `done`: where a resumed job begins; the rate counts from there.
  Progress(std::string title, std::string unit, int64_t total, int64_t done = 0, bool quiet = false,
           double plain_seconds = 10);
  ~Progress();  ///< ends the line
  Progress(const Progress&) = delete;

  /// A total that is known only now.
  void of(int64_t total) { state_.total = total; }
  /// `note` is shown at the end of the line ("loss 2.31 bpb").
  void update(int64_t done, const std::string& note = "");
  /// Prints a whole line above the bar.
  void print(const std::string& line);
  /// Redraws the last state, ends the line and prints `last`, a line of its own; later calls do nothing.
  void finish(const std::string& last = "");

 private:
  bool due() const;
  void draw();
  void erase_bar();

  ProgressState state_;
  bool quiet_, terminal_, finished_ = false, drawn_ = false, fresh_ = true;  // fresh_: nothing new since the last draw
  double plain_seconds_;
  std::chrono::steady_clock::time_point start_, last_draw_;
};

/// "12 s", "5:32", "1:05:00", "2 d 3 h".
std::string duration(double seconds);
/// With three digits, or all of a whole one: "0.0312", "48.5", "12345".
std::string three_digits(double x);
/// "512 B", "1.5 MB", "2.1 GB" (powers of 1000).
std::string byte_size(double bytes);

}  // namespace lapse
