#include "lapse/core/plugin.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <new>

#include "lapse/core/error.h"
#include "lapse/core/file.h"

namespace lapse {
namespace {

// The sanitizers refuse RTLD_DEEPBIND; under them the tests of the tokenizer run without libtorch.
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)  // how clang says it
#define LAPSE_SANITIZED
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)  // how GCC does
#define LAPSE_SANITIZED
#endif
#ifdef LAPSE_SANITIZED
constexpr int kDeep = 0;
#else
constexpr int kDeep = RTLD_DEEPBIND;
#endif

fs::path path_of(const std::string& library) {
  std::error_code ignored;
  Dl_info here{};
  if (dladdr(reinterpret_cast<const void*>(&plugin_entry), &here) != 0 && here.dli_fname != nullptr) {
    const fs::path path = fs::weakly_canonical(here.dli_fname, ignored).parent_path() / library;
    if (fs::exists(path, ignored)) return path;
  }
  return fs::read_symlink("/proc/self/exe", ignored).parent_path() / library;
}

}  // namespace

void* plugin_entry(const std::string& what, const std::string& library, const char* entry, Symbols symbols) {
  void* opened = dlopen(path_of(library).c_str(), RTLD_NOW | (symbols == Symbols::kOwn ? kDeep : 0));
  void* found = opened ? dlsym(opened, entry) : nullptr;
  if (found == nullptr) {
    const std::string why = dlerror();
    if (why.find("failed to map") != why.npos || why.find("cannot allocate") != why.npos) throw std::bad_alloc();
    fail(fmt::format("{} need the library {}: {}", what, library, why));
  }
  return found;
}

}  // namespace lapse
