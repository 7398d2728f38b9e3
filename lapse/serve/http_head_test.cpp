#include "lapse/serve/http_head.h"

#include <gtest/gtest.h>

namespace lapse {
namespace {

constexpr int64_t kPort = 8080;

HttpHead head_of(const std::string& lines) { return read_head(lines + "\r\n\r\n", HttpLimits()); }

TEST(HttpHead, ReadsWhatIsRegular) {
  const HttpHead head = head_of(
      "POST /api/sessions?x=1 HTTP/1.1\r\nHost: localhost:8080\r\ncontent-length: 12\r\nContent-Type:  "
      "application/json ");
  EXPECT_EQ(head.status, 0) << head.message;
  EXPECT_EQ(head.method, "POST");
  EXPECT_EQ(head.target, "/api/sessions?x=1");
  EXPECT_EQ(head.length, 12u);
  EXPECT_EQ(head.header("content-type"), "application/json");
}

TEST(HttpHead, RefusesWhatIsNot) {
  const std::string host = "\r\nHost: localhost:8080";
  const std::map<std::string, int> cases = {
      {"", 400},
      {"GET", 400},
      {"GET / HTTP/2", 505},
      {"GET  HTTP/1.1", 400},
      {"GET / HTTP/1.1", 400},  // no Host
      {"BREW / HTTP/1.1" + host, 405},
      {"GET http://else/ HTTP/1.1" + host, 400},
      {"GET /a\tb HTTP/1.1" + host, 400},
      {"GET /%61pi HTTP/1.1" + host, 400},  // the library would answer as for /api
      {"GET /" + std::string(3000, 'a') + " HTTP/1.1" + host, 414},
      {"GET / HTTP/1.1" + host + "\r\nno colon", 400},
      {"GET / HTTP/1.1" + host + "\r\n folded: x", 400},
      {"GET / HTTP/1.1" + host + "\r\nA : x", 400},
      {"GET / HTTP/1.1" + host + "\r\nA: x\ny", 400},
      {"GET / HTTP/1.1" + host + host, 400},
      {"POST / HTTP/1.1" + host + "\r\nTransfer-Encoding: chunked", 411},
      {"POST / HTTP/1.1" + host, 411},
      {"POST / HTTP/1.1" + host + "\r\nContent-Length: -1", 400},
      {"POST / HTTP/1.1" + host + "\r\nContent-Length: 1, 1", 400},
      {"POST / HTTP/1.1" + host + "\r\nContent-Length: 99999999999999999999999", 413},
      {"POST / HTTP/1.1" + host + "\r\nContent-Length: 2000000", 413},
      {"POST / HTTP/1.1" + host + "\r\nContent-Length: 2\r\nContent-Type: text/plain", 415},
      {"POST / HTTP/1.1" + host + "\r\nContent-Length: 2", 415},
      {"POST / HTTP/1.1" + host + "\r\nContent-Encoding: gzip", 415},
      {"GET / HTTP/1.1" + host + "\r\nContent-Length: 2", 400},
      {"GET / HTTP/1.1" + host + "\r\nRange: bytes=0-1", 416},
      {"GET / HTTP/1.1" + host + "\r\nExpect: 100-continue", 417},
      {"POST / HTTP/1.1" + host + "\r\nContent-Length: 2000000\r\nExpect: 100-continue", 413},
  };
  for (const auto& [lines, status] : cases) EXPECT_EQ(head_of(lines).status, status) << lines;
  std::string many = "GET / HTTP/1.1" + host;
  for (int i = 0; i < 100; ++i) many += "\r\nX-" + std::to_string(i) + ": 1";
  EXPECT_EQ(head_of(many).status, 431);
}

int origin(const std::string& headers, const HttpOptions& options = {}, const std::string& target = "/api") {
  const HttpHead head = head_of("GET " + target + " HTTP/1.1\r\n" + headers);
  EXPECT_EQ(head.status, 0) << head.message;
  return check_origin(head, options, kPort).status;
}

TEST(HttpHead, AnswersOnlyToItsOwnNames) {
  for (const char* name : {"localhost:8080", "127.0.0.1:8080", "[::1]:8080", "LOCALHOST:8080"})
    EXPECT_EQ(origin(std::string("Host: ") + name), 0) << name;
  for (const char* name :
       {"evil.example:8080", "localhost", "localhost:80", "127.0.0.1.evil.example:8080", ":8080", ""})
    EXPECT_EQ(origin(std::string("Host: ") + name), 403) << name;
  EXPECT_EQ(origin("Host: box.lan:8080", {.host = "box.lan"}), 0);
  EXPECT_EQ(origin("Host: other.lan:8080", {.host = "box.lan"}), 403);
  EXPECT_EQ(origin("Host: any.lan:8080", {.host = "0.0.0.0"}), 0);
}

TEST(HttpHead, AnswersNoOtherOrigin) {
  const std::string host = "Host: localhost:8080\r\n";
  EXPECT_EQ(origin(host + "Origin: http://localhost:8080"), 0);
  for (const char* other : {"http://evil.example", "https://localhost:8080", "http://localhost:81", "null", "file://"})
    EXPECT_EQ(origin(host + "Origin: " + other), 403) << other;
  EXPECT_EQ(origin(host + "Sec-Fetch-Site: same-origin"), 0);
  EXPECT_EQ(origin(host + "Sec-Fetch-Site: cross-site"), 403);
  EXPECT_EQ(origin(host + "Sec-Fetch-Site: cross-site", {}, "/"), 0) << "a link to the page";
}

TEST(HttpHead, AsksForTheToken) {
  const auto with = [](const std::string& header, const std::string& target = "/api") {
    return check_token(head_of("GET " + target + " HTTP/1.1\r\nHost: x" + header), {.token = "secret-word"}).status;
  };
  for (const char* scheme : {"Bearer", "bearer", "BEARER"})
    EXPECT_EQ(with(std::string("\r\nAuthorization: ") + scheme + " secret-word"), 0) << scheme;
  for (const char* wrong : {"", "\r\nAuthorization: Bearer secret-wor", "\r\nAuthorization: Bearer ",
                            "\r\nAuthorization: Bearer secret-wordsecret-word", "\r\nAuthorization: secret-word"})
    EXPECT_EQ(with(wrong), 401) << wrong;
  EXPECT_EQ(with("", "/v1/completions"), 401);
  for (const char* target : {"//api", "/./api", "/API", "/api?a=%41"}) EXPECT_EQ(with("", target), 401) << target;
  EXPECT_EQ(with("", "/"), 0) << "the page holds nothing secret";
}

}  // namespace
}  // namespace lapse
