// What grid worlds share: four moves, and the 3 x 3 cells that an agent sees. Rows grow downwards.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lapse {

struct GridMove {
  int32_t down, right;  ///< cells
};

inline std::vector<std::string> grid_actions() { return {"up", "down", "left", "right"}; }

inline GridMove grid_move(int32_t action) { return {(action == 1) - (action == 0), (action == 3) - (action == 2)}; }

constexpr int64_t kWindowCells = 9;

/// Calls see(cell, row, column) for the cells around (row, column), row by row.
template <class See>
void see_window(int32_t row, int32_t column, See&& see) {
  int32_t cell = 0;
  for (int32_t r = row - 1; r <= row + 1; ++r)
    for (int32_t c = column - 1; c <= column + 1; ++c) see(cell++, r, c);
}

}  // namespace lapse
