// Where two texts begin to differ.
#pragma once

#include <string>
#include <utility>

namespace lapse {

/// The first line in which the texts differ: each text's, or "nothing" where it has no more lines. Both are empty where
/// the texts are the same.
std::pair<std::string, std::string> first_difference(const std::string& a, const std::string& b);

}  // namespace lapse
