#include "lapse/cli/terminal.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <csignal>
#include <sstream>

#include "lapse/core/error.h"
#include "lapse/data/utf8.h"

namespace lapse {
namespace {

constexpr char kEnter[] = "\033[?1049h\033[?25l", kLeave[] = "\033[?25h\033[?1049l";  // screen of its own, no cursor
constexpr int kEndings[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL};
constexpr int kEscapeWait = 25;  // milliseconds that the rest of an arrow key's sequence may take

termios before;

void write_all(const char* text, size_t size) {
  while (size > 0) {
    const ssize_t written = ::write(STDOUT_FILENO, text, size);
    if (written <= 0) return;
    text += written, size -= written;
  }
}

void restore() {
  write_all(kLeave, sizeof kLeave - 1);
  tcsetattr(STDIN_FILENO, TCSANOW, &before);
}

void on_ending(int signal) {  // calls what a signal handler may call, and no more
  restore();
  std::signal(signal, SIG_DFL);
  raise(signal);
}

void on_resize(int) {}  // ends the wait for a key

/// The next byte; -1 if none comes in time, -2 at the end of input.
int next_byte(int wait) {
  pollfd input{STDIN_FILENO, POLLIN, 0};
  if (poll(&input, 1, wait) <= 0) return -1;
  unsigned char byte;
  return ::read(STDIN_FILENO, &byte, 1) == 1 ? byte : -2;
}

}  // namespace

bool Terminal::is_there() { return isatty(STDIN_FILENO) != 0 && isatty(STDOUT_FILENO) != 0; }

Terminal::Terminal() {
  if (tcgetattr(STDIN_FILENO, &before) != 0) fail("cannot use the terminal; redirect standard input to play without");
  for (const int signal : kEndings) std::signal(signal, on_ending);
  std::signal(SIGWINCH, on_resize);
  termios keys = before;
  keys.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO | ISIG);
  keys.c_cc[VMIN] = 1, keys.c_cc[VTIME] = 0;
  tcsetattr(STDIN_FILENO, TCSANOW, &keys);
  write_all(kEnter, sizeof kEnter - 1);
}

Terminal::~Terminal() {
  restore();
  for (const int signal : kEndings) std::signal(signal, SIG_DFL);
  std::signal(SIGWINCH, SIG_DFL);
}

void Terminal::draw(const std::string& frame, const std::string& keys) const {
  const int columns = size().columns;
  const auto drawn = [columns](const std::string& line) { return cut(line, columns) + "\033[0m\033[K"; };
  std::string text = "\033[H";
  std::istringstream lines(frame);
  std::string line;
  for (int row = 0; row < frame_rows() && std::getline(lines, line); ++row) text += drawn(line) + "\r\n";
  text += drawn("") + "\r\n" + drawn(keys) + "\033[J";
  write_all(text.data(), text.size());
}

std::string Terminal::key(int wait) const {
  const int byte = next_byte(wait);
  if (byte == -1) return "";
  if (byte == -2 || byte == 3 || byte == 4) return "leave";
  if (byte != 27) return {static_cast<char>(byte)};
  const int kind = next_byte(kEscapeWait);
  if (kind != '[' && kind != 'O') return "escape";
  switch (next_byte(kEscapeWait)) {
    case 'A':
      return "up";
    case 'B':
      return "down";
    case 'C':
      return "right";
    case 'D':
      return "left";
    default:
      return "escape";
  }
}

Terminal::Size Terminal::size() const {
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_row == 0 || size.ws_col == 0) return {24, 80};
  return {size.ws_row, size.ws_col};
}

std::string cut(const std::string& line, int columns) {
  std::string shown;
  for (size_t i = 0, n = 0; i < line.size();) {
    size_t end = i + 1;
    if (line[i] == '\033') {
      while (end < line.size() && line[end - 1] != 'm') ++end;
    } else {
      while (end < line.size() && continues_character(line[end])) ++end;  // the rest of a character
      if (++n > static_cast<size_t>(columns)) break;
    }
    shown.append(line, i, end - i);
    i = end;
  }
  return shown;
}

}  // namespace lapse
