// A terminal that a program has to itself: keys as they are pressed, and frames drawn over one another.
#pragma once

#include <string>

namespace lapse {

class Terminal {
 public:
  /// Whether standard input and output are one.
  static bool is_there();

  /// Takes it over; given back as it was by the destructor, and by every signal that ends the process.
  Terminal();
  ~Terminal();
  Terminal(const Terminal&) = delete;

  /// Draws lines in the place of those before; cuts what is wider or longer than the terminal.
  void draw(const std::string& frame) const;

  /// The next key: a character, or "up", "down", "left", "right"; "leave" for Ctrl-C, Ctrl-D and at the end of input.
  /// "" after so many milliseconds (-1: never), and when the terminal's size has changed.
  std::string key(int wait) const;

  struct Size {
    int rows, columns;
  };
  Size size() const;
};

/// The first `columns` characters of a line; sequences that set colours take no place.
std::string cut(const std::string& line, int columns);

}  // namespace lapse
