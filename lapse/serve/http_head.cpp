#include "lapse/serve/http_head.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>

namespace lapse {
namespace {

HttpHead refused(int status, std::string message) { return {.status = status, .message = std::move(message)}; }

std::string lower(std::string_view text) {
  std::string all(text);
  std::ranges::transform(all, all.begin(), [](unsigned char c) { return std::tolower(c); });
  return all;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

bool is_name(std::string_view text) {
  constexpr std::string_view kMarks = "!#$%&'*+-.^_`|~";
  return !text.empty() && std::ranges::all_of(text, [&](unsigned char c) {
    return std::isalnum(c) || kMarks.find(static_cast<char>(c)) != kMarks.npos;
  });
}

/// No byte ends the comparison sooner than another.
bool same(std::string_view a, std::string_view b) {
  unsigned char different = a.size() != b.size();
  for (size_t i = 0; i < a.size(); ++i) different |= a[i] ^ b[b.empty() ? 0 : i % b.size()];
  return different == 0;
}

/// "host:port" of a Host header, or the host alone.
std::pair<std::string, std::string> split_host(const std::string& text) {
  const size_t colon = text.rfind(':'), bracket = text.rfind(']');
  if (colon == text.npos || (bracket != text.npos && colon < bracket)) return {text, "80"};
  return {text.substr(0, colon), text.substr(colon + 1)};
}

/// "/api/runs" of "/api/runs?a=b".
std::string_view path_of(const std::string& target) { return std::string_view(target).substr(0, target.find('?')); }

/// Only the page itself is for everybody. What is not known to be the page is protected.
bool is_protected(const std::string& target) { return path_of(target) != "/"; }

}  // namespace

bool is_loopback(const std::string& host) {
  return host == "localhost" || host == "127.0.0.1" || host == "::1" || host == "[::1]";
}

std::string HttpHead::header(const std::string& name) const {
  const auto found = headers.find(name);
  return found == headers.end() ? "" : found->second;
}

HttpHead read_head(std::string_view text, const HttpLimits& limits) {
  HttpHead head;
  size_t end = text.find("\r\n");
  const std::string_view line = text.substr(0, end);
  const size_t first = line.find(' '), second = line.rfind(' ');
  if (end == text.npos || first == line.npos || first == second) return refused(400, "the request line is malformed");
  head.method = line.substr(0, first), head.target = line.substr(first + 1, second - first - 1);
  const std::string_view version = line.substr(second + 1);
  if (version != "HTTP/1.1" && version != "HTTP/1.0") return refused(505, "HTTP/1.1 is spoken here");
  if (head.method != "GET" && head.method != "POST" && head.method != "DELETE")
    return refused(405, "only GET, POST and DELETE are answered");
  if (head.target.size() > limits.target) return refused(414, "the address is too long");
  if (!head.target.starts_with('/') ||
      std::ranges::any_of(head.target, [](unsigned char c) { return c <= ' ' || c >= 127; }))
    return refused(400, "the address is malformed");
  // The library decodes a path before it is answered; what is checked here must be what it answers.
  if (path_of(head.target).find('%') != std::string_view::npos)
    return refused(400, "the path is malformed: no address here has a %");

  for (size_t begin = end + 2; (end = text.find("\r\n", begin)) != begin; begin = end + 2) {
    if (end == text.npos) return refused(400, "the headers are malformed");
    const std::string_view header = text.substr(begin, end - begin);
    const size_t colon = header.find(':');
    if (colon == header.npos || !is_name(header.substr(0, colon))) return refused(400, "a header is malformed");
    const std::string_view value = trimmed(header.substr(colon + 1));
    if (std::ranges::any_of(value, [](unsigned char c) { return (c < ' ' && c != '\t') || c == 127; }))
      return refused(400, "a header has control characters");
    if (!head.headers.emplace(lower(header.substr(0, colon)), value).second)
      return refused(400, "a header comes twice");
    if (head.headers.size() > limits.headers) return refused(431, "too many headers");
  }

  if (head.headers.count("host") == 0) return refused(400, "the header Host is missing");
  if (head.headers.count("transfer-encoding")) return refused(411, "give Content-Length; chunked bodies are not read");
  if (head.headers.count("content-encoding")) return refused(415, "compressed bodies are not read");
  if (head.headers.count("range")) return refused(416, "parts are not served");
  if (head.headers.count("upgrade")) return refused(400, "there is nothing to upgrade to");
  const std::string length = head.header("content-length");
  if (!length.empty()) {
    const auto [stop, error] = std::from_chars(length.data(), length.data() + length.size(), head.length);
    if (error == std::errc::result_out_of_range) return refused(413, "the body is too large");
    if (error != std::errc() || stop != length.data() + length.size())
      return refused(400, "Content-Length is malformed");
  } else if (head.method == "POST") {
    return refused(411, "give Content-Length");
  }
  if (head.length > limits.body) return refused(413, fmt::format("the body has more than {} bytes", limits.body));
  // After the length: curl expects this of large bodies, and should hear that they are too large.
  if (head.headers.count("expect")) return refused(417, "Expect is not answered; send the body at once");
  if (head.method == "GET" && head.length > 0) return refused(400, "GET has no body");
  if (head.length > 0 && !lower(head.header("content-type")).starts_with("application/json"))
    return refused(415, "give JSON, with Content-Type: application/json");
  return head;
}

// A page of another site may have its name resolve to our address, and the browser then sends that name; it may also
// post to us from its own origin. Neither is answered.
Refusal check_origin(const HttpHead& head, const HttpOptions& options, int64_t port) {
  const std::string given = lower(head.header("host"));
  const auto [host, number] = split_host(given);
  const bool anywhere = options.host == "0.0.0.0" || options.host == "::";
  const bool known = anywhere || is_loopback(host) || host == lower(options.host) || host == "[" + options.host + "]";
  if (!known || number != fmt::format("{}", port))
    return {403, fmt::format("this server is {}:{}, and does not go by the name of the header Host; a tunnel must have "
                             "the same port at both ends",
                             options.host, port)};
  if (head.headers.count("origin") && lower(head.header("origin")) != "http://" + given)
    return {403, "requests from pages of other origins are not answered"};
  const std::string site = head.header("sec-fetch-site");
  if (is_protected(head.target) && !site.empty() && site != "same-origin" && site != "none")
    return {403, "requests from pages of other sites are not answered"};
  return {};
}

Refusal check_token(const HttpHead& head, const HttpOptions& options) {
  if (options.token.empty() || !is_protected(head.target)) return {};
  const std::string given = head.header("authorization");
  constexpr std::string_view kScheme = "bearer ";  // in any case: RFC 9110, 11.1
  if (lower(given.substr(0, kScheme.size())) == kScheme &&
      same(std::string_view(given).substr(kScheme.size()), options.token))
    return {};
  return {401, "give the token of --token: Authorization: Bearer TOKEN"};
}

}  // namespace lapse
