#include "lapse/core/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

namespace lapse {
namespace {

constexpr int kBar = 20, kDefaultColumns = 80;
constexpr double kTerminalSeconds = 0.1, kRateSeconds = 0.1;  // between redraws; before a rate means anything
constexpr const char* kEraseLine = "\r\x1b[K";

// Two significant digits at least, all of those before the point.
std::string rate_text(double rate) { return rate < 10 ? fmt::format("{:.2g}", rate) : fmt::format("{:.0f}", rate); }

double fraction(const ProgressState& state) {
  return std::clamp(static_cast<double>(state.done) / static_cast<double>(state.total), 0.0, 1.0);
}

std::string bar(const ProgressState& state) {
  const auto filled = static_cast<size_t>(fraction(state) * kBar);
  return fmt::format(" [{}{}]", std::string(filled, '#'), std::string(kBar - filled, ' '));
}

// The first `columns` characters of UTF-8 text; a continuation byte takes no column.
std::string cut(const std::string& text, int columns) {
  size_t end = 0;
  for (; end < text.size(); ++end) {
    const bool starts_character = (static_cast<unsigned char>(text[end]) & 0xC0) != 0x80;
    if (starts_character && columns-- == 0) break;
  }
  return text.substr(0, end);
}

int terminal_columns() {
  winsize size{};
  const bool known = ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
  return (known ? size.ws_col : kDefaultColumns) - 1;  // a full line would wrap, and then not be redrawn in place
}

// Unlike fmt::print this does not throw where stderr is closed: a lost progress bar must not end the job.
void emit(const std::string& text) { std::fputs(text.c_str(), stderr); }

double seconds_since(std::chrono::steady_clock::time_point then) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - then).count();
}

}  // namespace

std::string progress_line(const ProgressState& state, int columns) {
  std::string line = state.title;
  if (state.total > 0) line += fmt::format(" {:3.0f}%", std::floor(100 * fraction(state)));
  const size_t bar_place = line.size();
  line += fmt::format("  {}", state.done);
  if (state.total > 0) line += fmt::format("/{}", state.total);
  line += ' ' + state.unit;

  const double rate = state.seconds >= kRateSeconds ? static_cast<double>(state.done - state.first) / state.seconds : 0;
  if (rate > 0) line += fmt::format("  {}/s", rate_text(rate));
  if (rate > 0 && state.total > state.done)
    line += fmt::format("  eta {}", duration(static_cast<double>(state.total - state.done) / rate));
  if (!state.note.empty()) line += "  " + state.note;

  std::ranges::replace_if(
      line, [](unsigned char c) { return c < ' '; }, ' ');  // a line break would spoil the redraw
  if (columns <= 0) return line;
  if (state.total > 0 && line.size() + kBar + 3 <= static_cast<size_t>(columns)) line.insert(bar_place, bar(state));
  return cut(line, columns);
}

Progress::Progress(std::string title, std::string unit, int64_t total, int64_t done, bool quiet, double plain_seconds)
    : state_{std::move(title), std::move(unit), "", total, done, done, 0},
      quiet_(quiet),
      terminal_(::isatty(STDERR_FILENO) == 1),
      plain_seconds_(plain_seconds),
      start_(std::chrono::steady_clock::now()),
      last_draw_(start_) {}

Progress::~Progress() { finish(); }

void Progress::update(int64_t done, const std::string& note) {
  if (quiet_ || finished_) return;
  state_.done = done;
  state_.note = note;
  fresh_ = false;
  if (due()) draw();
}

void Progress::print(const std::string& line) {
  if (quiet_ || finished_) return;
  const bool redraw = drawn_;
  erase_bar();
  emit(line + '\n');
  if (redraw) draw();
}

void Progress::finish(const std::string& last) {
  if (quiet_ || finished_) return;
  if (!fresh_) draw();
  if (drawn_) emit("\n");
  if (!last.empty()) emit(last + '\n');
  finished_ = true;
}

bool Progress::due() const {
  if (terminal_) return !drawn_ || seconds_since(last_draw_) >= kTerminalSeconds;
  return seconds_since(last_draw_) >= plain_seconds_;
}

void Progress::draw() {
  state_.seconds = seconds_since(start_);
  last_draw_ = std::chrono::steady_clock::now();
  fresh_ = true;
  if (!terminal_) {
    emit(progress_line(state_, 0) + '\n');
    return;
  }
  emit(kEraseLine + progress_line(state_, terminal_columns()));
  drawn_ = true;
}

void Progress::erase_bar() {
  if (drawn_) emit(kEraseLine);
  drawn_ = false;
}

std::string duration(double seconds) {
  if (!std::isfinite(seconds)) return "?";
  const double whole = std::round(std::max(seconds, 0.0));
  if (whole >= 86400)
    return fmt::format("{:.0f} d {:.0f} h", std::floor(whole / 86400), std::floor(std::fmod(whole, 86400) / 3600));
  const int s = static_cast<int>(whole);
  if (s < 60) return fmt::format("{} s", s);
  if (s < 3600) return fmt::format("{}:{:02}", s / 60, s % 60);
  return fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
}

std::string three_digits(double x) { return std::abs(x) < 999.5 ? fmt::format("{:.3g}", x) : fmt::format("{:.0f}", x); }

std::string byte_size(double bytes) {
  const char* units[] = {"kB", "MB", "GB", "TB", "PB"};
  if (std::abs(bytes) < 999.5) return fmt::format("{:.0f} B", bytes);
  size_t unit = 0;
  bytes /= 1000;
  while (std::abs(bytes) >= 999.95 && unit + 1 < std::size(units)) bytes /= 1000, ++unit;  // would round to 1000.0
  return fmt::format("{:.1f} {}", bytes, units[unit]);
}

}  // namespace lapse
