// Text in which what a model still remembers is highlighted.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lapse {

/// `pieces`: the text of each token; `counts`: in how many of `layers` layers it is remembered. With `colour` ANSI
/// backgrounds, the darker the more layers; without, remembered text stands in [brackets]. Bytes of one UTF-8 character
/// stay together.
std::string highlight(const std::vector<std::string>& pieces, const std::vector<int32_t>& counts, int32_t layers,
                      bool colour);

}  // namespace lapse
