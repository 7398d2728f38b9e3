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

  /// Draws lines in the place of those before, and below them one of what the keys do. Cuts what is wider than the
  /// terminal, or has more lines than frame_rows.
  void draw(const std::string& frame, const std::string& keys) const;
  int frame_rows() const { return size().rows - 2; }  ///< an empty line stands before that of the keys

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
