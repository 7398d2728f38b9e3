// Inflating gzip files held in memory.
#pragma once

#include <string>
#include <string_view>

namespace lapse {

/// Whether the bytes begin as every gzip file does.
bool is_gzip(std::string_view bytes);

/// The text of all members, one after the other. Damage, an early end, bytes that follow the last member, and a text
/// that is larger than texts are (a gzip bomb) or does not fit into memory are an Error that begins with `origin`.
std::string inflate_gzip(std::string_view bytes, const std::string& origin);

}  // namespace lapse
