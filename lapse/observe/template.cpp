#include "lapse/observe/template.h"

namespace lapse {
namespace {

constexpr std::string_view kStyle =
#include "embedded/lapse/observe/draw.css.inc"
    ;
constexpr std::string_view kScript =
#include "embedded/lapse/observe/draw.js.inc"
    ;

}  // namespace

std::string filled(std::string_view page, const std::vector<std::pair<std::string_view, std::string>>& parts) {
  std::string all;
  for (const auto& [mark, text] : parts) {
    const size_t place = page.find(mark);
    all += page.substr(0, place);
    all += text;
    page.remove_prefix(place + mark.size());
  }
  return all += page;
}

std::string drawing_style() { return std::string(kStyle); }
std::string drawing_script() { return std::string(kScript); }

}  // namespace lapse
