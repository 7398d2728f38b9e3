// What the pages of `lapse inspect` and `lapse serve` share: how text is put into them, and how they draw.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lapse {

/// A page with its marks replaced, which come in the template's order: inserted text is not searched for marks.
std::string filled(std::string_view page, const std::vector<std::pair<std::string_view, std::string>>& parts);

std::string drawing_style();   ///< draw.css
std::string drawing_script();  ///< draw.js

}  // namespace lapse
