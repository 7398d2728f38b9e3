#!/usr/bin/env bash
# Gets texts to train on from Debian's packages: plain UTF-8, one file each, in data/.
#
#   scripts/data.sh            jargon, which the examples read
#   scripts/data.sh NAME...    these
#   scripts/data.sh --list     what there is, with sizes and licences; and the papers' texts, which you bring yourself
#
# LAPSE_DATA=DIR puts them elsewhere. What is there already is kept. Packages are unpacked, not installed.
set -euo pipefail

usage() { sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"; }
die() { printf 'data: error: %s\n' "$*" >&2; exit 1; }

# name | Debian's package | size | licence | what it is
texts="\
jargon    | dict-jargon | 1.4 MB  | public domain                            | the Jargon File: hackers' words explained
devil     | dict-devil  | 0.4 MB  | public domain                            | The Devil's Dictionary, Ambrose Bierce
foldoc    | dict-foldoc | 5.6 MB  | GNU FDL 1.1 or later                     | Free On-line Dictionary of Computing
anarchism | anarchism   | 11.7 MB | GNU GPL 2 or later                       | An Anarchist FAQ: essays
gcide     | dict-gcide  | 40 MB   | GNU GPL 2 or later                       | Collaborative International Dictionary of English
wordlist  | wamerican   | 1.0 MB  | SCOWL: free to use and sell, keep notice | American English words, one a line"

# What the papers read and Debian does not have: name, then what to bring, in what form, from where, for which option.
declare -A brought=(
  [enwik8]="enwik8: the file enwik8 itself, the first 100,000,000 bytes of a dump of the English Wikipedia of 2006.
    From: Large Text Compression Benchmark, www.mattmahoney.net/text/text.html (Mahoney 2011, cited by Expire-Span)
    Use:  lapse train CONFIG --data data/enwik8 --out RUN, with data.split = [0.9, 0.05, 0.05]
    Some experiments read its beginning: head -c 4154064 data/enwik8 > data/enwik8-head.txt"
  [wikitext-2]="wikitext-2, wikitext-103: wiki.train.tokens, wiki.valid.tokens and wiki.test.tokens, words between spaces.
    From: Merity et al. 2016, \"Pointer Sentinel Mixture Models\" (arXiv 1609.07843), cited by both papers
    Use:  data.train, data.valid and data.test name the three files; data.unit = \"word\""
  [pg19]="pg19: the books of each part in one file, train.txt, valid.txt and test.txt, plain or gzip.
    From: Rae et al. 2020, \"Compressive Transformers for Long-Range Sequence Modelling\" (arXiv 1911.05507)
    Use:  data.train, data.valid and data.test name the three files; data.unit = \"character\""
  [c4]="c4: text, one document a line, plain or gzip, as c4.txt.
    Some experiments read a little of it, ours 1.3 MB: data/c4-sample.txt
    From: Raffel et al. 2020, \"Exploring the Limits of Transfer Learning\" (arXiv 1910.10683), cited by Selective Attention
    Use:  lapse tokenizer train --data data/c4.txt --documents lines --fraction 0.99 --vocabulary 8192 --out data/c4-8k.model
          lapse init paper-c4-8k -o c4.toml; lapse train c4.toml --data data/c4.txt --out RUN"
  [wikipedia]="wikipedia: articles in plain text between lines <doc ...> and </doc>, as WikiExtractor writes them, as wikipedia.txt.gz.
    Ours: 96,339 articles of the English Wikipedia, 66 MB; with others results differ
    Use:  lapse train experiments/wikipedia/expire_span.toml --out RUN"
  [novels]="novels: long books in one file for each part, train.txt.gz, valid.txt.gz and test.txt.gz, in novels/; where PG-19 is too large.
    Ours: 90, 5 and 5 English novels of the 19th and early 20th century in the public domain, 78 MB; with others results differ
    Use:  data.train, data.valid and data.test name the three files; data.unit = \"character\""
  [light]="light: the world of the game LIGHT, complex_world_2020-09.json.
    From: Urbanek et al. 2019, cited by the Expire-Span paper
    Use:  lapse task show instruction --set instruction.world=data/complex_world_2020-09.json; docs/tasks.md"
)
brought[wikitext-103]=${brought[wikitext-2]}

list() {
  local name package size licence what
  printf 'From Debian, by scripts/data.sh NAME:\n\n'
  while IFS='|' read -r name package size licence what; do
    printf '  %-9s %8s  %s (package %s; %s)\n' "$name" "$size" "$what" "$package" "$licence"
  done < <(sed 's/ *| */|/g' <<<"$texts")
  printf '\nWhat the papers read, which you bring yourself, to the folder data/ or another:\n'
  for name in enwik8 wikitext-2 pg19 novels c4 wikipedia light; do printf '\n  %s\n' "${brought[$name]}"; done
}

names() { cut -d' ' -f1 <<<"$texts"; }
package_of() { awk -v name="$1" '$1 == name { print $3 }' <<<"$texts"; }

# --- Debian's packages ----------------------------------------------------------------------------------------------
as_root() { if [[ $(id -u) == 0 ]]; then "$@"; else sudo -n "$@"; fi; }

# Unpacks a package into a folder. dict-jargon installed would start a network daemon.
unpack() { # PACKAGE FOLDER
  { command -v apt-get && command -v dpkg-deb; } >/dev/null ||
    die "the texts come from Debian's packages, and apt is not here. Any text of yours will do: lapse train CONFIG --data FILE"
  (
    cd "$2"
    exec >log 2>&1 </dev/null
    apt-get download "$1" || { as_root apt-get update && apt-get download "$1"; } # a fresh image has no lists
    dpkg-deb -x "$1"_*.deb .
  ) || {
    tail -n 2 "$2/log" >&2
    die "could not fetch Debian's package $1 (offline?). Any text of yours will do: lapse train CONFIG --data FILE"
  }
}

# The text of an unpacked package, on standard output.
extract() { # NAME
  case $1 in
    anarchism) find usr/share/doc/anarchism/markdown -name '*.md.gz' | LC_ALL=C sort | xargs zcat ;;
    wordlist) cat usr/share/dict/american-english ;;
    *) zcat <"usr/share/dictd/$1.dict.dz" ;; # dictzip, which is gzip with an index in its header
  esac
}

get() { # NAME
  local file=$folder/$1.txt
  partial=$file.$$.partial
  if [[ -s $file ]]; then
    printf 'data: %s is there\n' "$file"
    return
  fi
  unpack "$(package_of "$1")" "$scratch"
  # gcide has three bytes that are not UTF-8; iconv leaves them out, and says so by its status, as it does where it cannot write.
  (cd "$scratch" && extract "$1") >"$scratch/bytes" || die "the package of $1 is not as expected"
  local most text
  most=$(wc -c <"$scratch/bytes")
  iconv -c -f UTF-8 -t UTF-8 "$scratch/bytes" >"$partial" || true
  text=$(wc -c <"$partial")
  ((text > 0)) || die "the package of $1 has no text where it is expected, or the disk is full"
  ((text >= most - 16)) || die "$partial has only $text of $most bytes (is the disk full?)"
  mv "$partial" "$file"
  find "$scratch" -mindepth 1 -delete
  printf 'data: wrote %s (%s bytes)\n' "$file" "$(wc -c <"$file")"
}

# --- the run --------------------------------------------------------------------------------------------------------
wanted=()
for argument in "$@"; do
  case $argument in
    -h | --help) usage; exit 0 ;;
    --list) list; exit 0 ;;
    -*) die "unknown option $argument; see scripts/data.sh --help" ;;
    *)
      [[ -z ${brought[$argument]:-} ]] || die "Debian does not have $argument; scripts/data.sh --list says how to bring it"
      grep -qxF -- "$argument" <<<"$(names)" ||
        die "unknown text '$argument'; there are $(names | paste -sd' '), and scripts/data.sh --list"
      wanted+=("$argument")
      ;;
  esac
done
((${#wanted[@]} > 0)) || wanted=(jargon)

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
folder=${LAPSE_DATA:-$root/data}
mkdir -p "$folder" 2>/dev/null || die "cannot make the folder $folder"
[[ -w $folder ]] || die "cannot write to the folder $folder; LAPSE_DATA=DIR names another"
scratch=$(mktemp -d)
partial=
trap 'rm -rf "$scratch"; [[ -z $partial ]] || rm -f "$partial"' EXIT
for name in "${wanted[@]}"; do get "$name"; done
