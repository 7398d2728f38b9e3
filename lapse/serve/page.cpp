#include "lapse/serve/page.h"

#include "lapse/observe/template.h"

namespace lapse {
namespace {

constexpr std::string_view kPage =
#include "embedded/lapse/serve/page/page.html.inc"
    ;
constexpr std::string_view kStyle =
#include "embedded/lapse/serve/page/page.css.inc"
    ;
constexpr std::string_view kScripts[] = {
#include "embedded/lapse/serve/page/session.js.inc"
    ,
#include "embedded/lapse/serve/page/text.js.inc"
    ,
#include "embedded/lapse/serve/page/curve.js.inc"
    ,
#include "embedded/lapse/serve/page/chosen.js.inc"
    ,
#include "embedded/lapse/serve/page/controls.js.inc"
    ,
#include "embedded/lapse/serve/page/keep.js.inc"
};

std::string whole_page() {
  std::string script = drawing_script();
  for (const auto part : kScripts) script += part;
  return filled(kPage, {{"{{style}}", drawing_style() + std::string(kStyle)}, {"{{script}}", script}});
}

}  // namespace

const std::string& page() {
  static const std::string all = whole_page();
  return all;
}

}  // namespace lapse
