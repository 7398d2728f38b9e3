#include "lapse/observe/report.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "lapse/observe/template.h"

namespace lapse {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kPage =
#include "embedded/lapse/observe/report.html.inc"
    ;
constexpr std::string_view kStyle =
#include "embedded/lapse/observe/report.css.inc"
    ;
constexpr std::string_view kScript =
#include "embedded/lapse/observe/report.js.inc"
    ;

/// Four digits are more than a shade or a tooltip can show.
Json rounded(const std::vector<double>& values) {
  Json all = Json::array();
  for (const double x : values)
    all.push_back(std::isfinite(x) ? Json(std::stod(fmt::format("{:.4g}", x))) : Json(nullptr));
  return all;
}

std::string escaped(std::string_view text) {
  std::string html;
  for (const char c : text) switch (c) {
      case '&':
        html += "&amp;";
        break;
      case '<':
        html += "&lt;";
        break;
      case '>':
        html += "&gt;";
        break;
      case '"':
        html += "&quot;";
        break;
      default:
        html += c;
    }
  return html;
}

/// [text, tokens that were read], of an agent's step also what it saw and did.
Json cells_of(const Contents& contents) {
  Json all = Json::array();
  for (const auto& part : contents.cells) {
    Json cells = Json::array();
    for (const auto& cell : part) {
      cells.push_back({cell.text, cell.tokens});
      if (!cell.sight.empty()) cells.back().push_back({{"sight", cell.sight}, {"act", cell.act}});
    }
    all.push_back(cells);
  }
  return all;
}

Json numbers_of(const Contents& contents) {
  Json numbers = Json::object();
  for (const auto& [name, values] : contents.numbers) numbers[name] = rounded(values);
  return numbers;
}

Json layers_of(const MemoryRecord& record) {
  Json layers = Json::array();
  for (const auto& layer : record.layers) {
    Json told = Json::object();
    for (const auto& [name, values] : layer.told) told[name] = rounded(values);
    layers.push_back({{"held", layer.held},
                      {"there", layer.there},
                      {"sizes", layer.sizes},
                      {"told", told},
                      {"mean", layer.mean()},
                      {"max", layer.largest()}});
  }
  return layers;
}

Json record_of(const MemoryRecord& record, const Contents& contents) {
  const size_t steps = record.layers.empty() ? 0 : record.layers[0].held.size();
  return {{"count", steps},
          {"begins", record.begins},
          {"headings", contents.headings},
          {"cells", cells_of(contents)},
          {"nats", rounded(contents.nats)},
          {"answers", contents.answers},
          {"numbers", numbers_of(contents)},
          {"layers", layers_of(record)}};
}

std::string data_of(const MemoryRecord& record, const Contents& contents, const ReportOptions& options,
                    const ComparedRecord* other) {
  Json data = {{"title", options.title}, {"facts", options.facts}, {"configuration", options.configuration},
               {"unit", contents.unit},  {"part", contents.part},  {"bos", contents.bos}};
  data.update(record_of(record, contents));
  if (other) data["other"] = record_of(other->record, other->contents), data["partner"] = other->partner;
  // ASCII alone; what a title or a path has that is not UTF-8 is replaced.
  return data.dump(-1, ' ', true, Json::error_handler_t::replace);
}

}  // namespace

std::string json_report(const MemoryRecord& record, const Contents& contents, const ReportOptions& options,
                        const ComparedRecord* other) {
  return data_of(record, contents, options, other) + "\n";
}

// Outside its strings JSON has none of these characters.
std::string embeddable(std::string_view json) {
  std::string safe;
  for (const char c : json) {
    if (c == '<' || c == '>' || c == '&')
      safe += fmt::format("\\u{:04x}", static_cast<int>(c));
    else
      safe += c;
  }
  return safe;
}

std::string html_report(const MemoryRecord& record, const Contents& contents, const ReportOptions& options,
                        const ComparedRecord* other) {
  const std::string json = embeddable(data_of(record, contents, options, other));
  return filled(kPage, {{"{{title}}", escaped(options.title)},
                        {"{{style}}", drawing_style() + std::string(kStyle)},
                        {"{{data}}", json},
                        {"{{script}}", drawing_script() + std::string(kScript)}});
}

}  // namespace lapse
