//! Turns the options of `lfs setstripe` into a requested layout. `-E` begins a component and the
//! options that follow belong to it, so the order of options counts.

use clap::{ArgMatches, Command, FromArgMatches};
use layout::composite::{CompositeTemplate, END_OF_FILE, TemplateComponent, Wanted};
use layout::{Asked, Template};

use super::list;
use crate::{pools, size};

/// Smallest unit of a stripe size, and of a component's end, as in Lustre.
const STRIPE_SIZE_UNIT: u64 = 64 << 10;
/// Bare ends and stripe sizes below are KiB, as in Lustre.
const KIB_BELOW: u64 = 4_096;

/// Options that say where bytes go; with `-E` each component has its own.
#[derive(Debug, Default, clap::Args)]
struct Options {
    /// Begin a component that ends there (64k, 1g; -1 or eof: the end of the file).
    #[arg(
        short = 'E',
        long = "component-end",
        visible_alias = "comp-end",
        value_name = "END",
        allow_negative_numbers = true
    )]
    end: Vec<String>,
    /// Stripes: 0 default, -1 over all OSTs.
    #[arg(
        short = 'c',
        long = "stripe-count",
        visible_alias = "count",
        value_name = "COUNT",
        allow_negative_numbers = true
    )]
    count: Vec<i32>,
    /// Stripes, several on an OST where OSTs are too few; -1 to -32: that many on every OST.
    #[arg(
        short = 'C',
        long = "overstripe-count",
        value_name = "COUNT",
        allow_negative_numbers = true
    )]
    overstripes: Vec<i32>,
    /// Bytes of a stripe, a multiple of 64k; a bare number below 4096 is KiB; 0 default.
    #[arg(short = 'S', long = "stripe-size", visible_alias = "size", value_name = "SIZE", value_parser = bytes_or_kib)]
    size: Vec<u64>,
    /// OST of the first stripe: -1 any.
    #[arg(
        short = 'i',
        long = "stripe-index",
        visible_alias = "index",
        value_name = "INDEX",
        allow_negative_numbers = true
    )]
    index: Vec<i32>,
    /// Pool of OSTs, POOL or FSNAME.POOL; none: no pool, inherit: the directory's.
    #[arg(short = 'p', long, value_name = "POOL")]
    pool: Vec<String>,
    /// OSTs of the stripes, in order: 0,2,5-7. An OST may be listed several times.
    #[arg(
        short = 'o',
        long = "ost-list",
        visible_alias = "ost",
        value_name = "LIST",
        conflicts_with = "index"
    )]
    osts: Vec<String>,
    /// Where the bytes are: raid0 on OSTs, mdt with the inode (first component only).
    #[arg(short = 'L', long = "layout", value_name = "PATTERN")]
    pattern: Vec<String>,
    /// Bytes by which the component grows while its OSTs have room. Then the next one goes on.
    #[arg(short = 'z', long = "extension-size", visible_alias = "ext-size", value_name = "SIZE", value_parser = size::parse)]
    extension: Vec<u64>,
    /// Mirrors (not yet).
    #[arg(short = 'N', long = "mirror-count", value_name = "COUNT", num_args = 0..=1, hide = true)]
    mirrors: Vec<String>,
}

/// One option, as it stood on the line.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Word {
    End(String),
    Count(i32),
    Overstripes(i32),
    Size(u64),
    Index(i32),
    Pool(String),
    Osts(String),
    Pattern(String),
    Extension(u64),
    Mirrors,
}

/// The options in their order.
#[derive(Debug, Default)]
pub(in crate::lfs) struct Parts(Vec<Word>);

impl clap::Args for Parts {
    fn augment_args(command: Command) -> Command {
        Options::augment_args(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Options::augment_args_for_update(command)
    }
}

impl FromArgMatches for Parts {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Parts, clap::Error> {
        let options = Options::from_arg_matches(matches)?;
        let mut words: Vec<(usize, Word)> = Vec::new();
        let mut take = |name: &str, found: Vec<Word>| {
            words.extend(matches.indices_of(name).into_iter().flatten().zip(found));
        };
        take("end", options.end.into_iter().map(Word::End).collect());
        take("count", options.count.into_iter().map(Word::Count).collect());
        take("overstripes", options.overstripes.into_iter().map(Word::Overstripes).collect());
        take("size", options.size.into_iter().map(Word::Size).collect());
        take("index", options.index.into_iter().map(Word::Index).collect());
        take("pool", options.pool.into_iter().map(Word::Pool).collect());
        take("osts", options.osts.into_iter().map(Word::Osts).collect());
        take("pattern", options.pattern.into_iter().map(Word::Pattern).collect());
        take("extension", options.extension.into_iter().map(Word::Extension).collect());
        if matches.contains_id("mirrors") {
            take("mirrors", vec![Word::Mirrors]);
        }
        words.sort_by_key(|(index, _)| *index);
        Ok(Parts(words.into_iter().map(|(_, word)| word).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Parts::from_arg_matches(matches)?;
        Ok(())
    }
}

/// What was said of one component, or of the whole file.
#[derive(Clone, Debug, Default)]
struct Said {
    end: Option<u64>,
    count: Option<i32>,
    overstriped: bool,
    size: Option<u64>,
    index: Option<i32>,
    pool: Option<String>,
    osts: Option<String>,
    extension: Option<u64>,
    is_at_mdt: bool,
}

/// A striping with the name of its pool as it was typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::lfs) struct Named {
    pub(in crate::lfs) template: Template,
    pub(in crate::lfs) pool: String,
}

impl Parts {
    /// The last count.
    pub(in crate::lfs) fn count(&self) -> Option<i32> {
        let of = |word: &Word| if let Word::Count(count) = word { Some(*count) } else { None };
        self.0.iter().rev().find_map(of)
    }

    /// The same with another number of stripes.
    pub(in crate::lfs) fn with_count(&self, count: i32) -> Parts {
        Parts(self.0.iter().cloned().chain([Word::Count(count)]).collect())
    }

    /// What is asked for, and its stripings with the pools as they were named; else what is wrong.
    pub(super) fn asked(&self) -> Result<(Asked, Vec<Named>), String> {
        let mut all = vec![Said::default()];
        for word in &self.0 {
            note(&mut all, word)?;
        }
        if let [one] = &all[..]
            && one.end.is_none()
        {
            if one.is_at_mdt {
                return Err("Option 'layout mdt' needs a component: -E END -L mdt".to_owned());
            }
            if one.extension.is_some() {
                return Err("Option 'extension-size' needs a component: -E END -z SIZE".to_owned());
            }
            let named = one.named()?;
            return Ok((named.template.clone().into(), vec![named]));
        }
        let mut components = Vec::new();
        let mut stripings = Vec::new();
        for said in &all {
            let end = said.end.ok_or("a component needs its end: -E END")?;
            let wanted = if said.is_at_mdt {
                said.check_mdt()?;
                Wanted::Mdt
            } else {
                let named = said.named()?;
                stripings.push(named.clone());
                match said.extension {
                    None => Wanted::Striped(named.template),
                    Some(step) => Wanted::Extendable(named.template, step),
                }
            };
            components.push(TemplateComponent { end, wanted });
        }
        let template = CompositeTemplate { components };
        template.check().map_err(|error| error.to_string())?;
        Ok((Asked::Composite(template), stripings))
    }
}

/// Takes the next option. Options before the first `-E` belong to the first component.
fn note(all: &mut Vec<Said>, word: &Word) -> Result<(), String> {
    if matches!(word, Word::End(_)) {
        let last = all.last().expect("there is one at least");
        if last.end.is_some() {
            let inherited = last.inherited();
            all.push(inherited);
        }
    }
    let said = all.last_mut().expect("there is one at least");
    match word {
        Word::End(text) => said.end = Some(end_of(text)?),
        Word::Count(count) => (said.count, said.overstriped) = (Some(*count), false),
        Word::Overstripes(count) => (said.count, said.overstriped) = (Some(*count), *count != 0),
        Word::Size(size) => said.size = Some(*size),
        Word::Index(index) => said.index = Some(*index),
        Word::Pool(pool) => said.pool = Some(pool.clone()),
        Word::Osts(osts) => said.osts = Some(osts.clone()),
        Word::Pattern(pattern) => match pattern.as_str() {
            "raid0" => said.is_at_mdt = false,
            "mdt" => said.is_at_mdt = true,
            other => return Err(format!("bad layout '{other}': expected raid0 or mdt")),
        },
        Word::Extension(size) => {
            if *size == 0 || !size.is_multiple_of(STRIPE_SIZE_UNIT) {
                return Err(format!("bad extension size {size}, must be a multiple of 64k"));
            }
            said.extension = Some(*size);
        }
        Word::Mirrors => {
            return Err("mirrors (-N) are not supported: each object has one copy".to_owned());
        }
    }
    Ok(())
}

/// A size; a bare number below 4096 is KiB.
fn bytes_or_kib(text: &str) -> Result<u64, String> {
    let bytes = size::parse(text)?;
    let is_bare = text.bytes().all(|byte| byte.is_ascii_digit());
    Ok(if is_bare && bytes < KIB_BELOW { bytes << 10 } else { bytes })
}

/// First byte behind a component: `-1` and `eof` are the end of the file.
fn end_of(text: &str) -> Result<u64, String> {
    if matches!(text.to_ascii_lowercase().as_str(), "-1" | "eof") {
        return Ok(END_OF_FILE);
    }
    let bytes = bytes_or_kib(text).map_err(|why| format!("bad component end: {why}"))?;
    if bytes == 0 || !bytes.is_multiple_of(STRIPE_SIZE_UNIT) {
        return Err(format!("bad component end '{text}', must be a multiple of 64k"));
    }
    Ok(bytes)
}

impl Said {
    /// What the next component takes over, as in Lustre: not its steps, nor OSTs by their numbers.
    fn inherited(&self) -> Said {
        if self.is_at_mdt {
            return Said::default();
        }
        Said {
            count: self.count,
            overstriped: self.overstriped,
            size: self.size,
            pool: self.pool.clone(),
            ..Said::default()
        }
    }

    fn check_mdt(&self) -> Result<(), String> {
        let options = [
            (self.count.is_some(), "stripe-count"),
            (self.size.is_some(), "stripe-size"),
            (self.index.is_some(), "stripe-index"),
            (self.osts.is_some(), "ost-list"),
            (self.pool.is_some(), "pool"),
            (self.extension.is_some(), "extension-size"),
        ];
        match options.iter().find(|(is_said, _)| *is_said) {
            Some((_, option)) => {
                Err(format!("Option '{option}' can't be specified with Data-on-MDT component"))
            }
            None => Ok(()),
        }
    }

    fn named(&self) -> Result<Named, String> {
        let size = self.size.unwrap_or(0);
        let stripe_size = u32::try_from(size)
            .map_err(|_| format!("bad stripe size {size}: expected less than 4 GiB"))?;
        if !size.is_multiple_of(STRIPE_SIZE_UNIT) {
            return Err(format!(
                "bad stripe size {size}, must be a multiple of {STRIPE_SIZE_UNIT} bytes"
            ));
        }
        let osts = self.osts.as_deref().map_or(Ok(Vec::new()), list::parse)?;
        let listed = i32::try_from(osts.len()).unwrap_or(i32::MAX);
        let count = self.count.unwrap_or(listed);
        check_count(count, self.overstriped)?;
        if listed > 0 && count != listed {
            return Err(format!("stripe count {count} does not fit the list of {listed} OSTs"));
        }
        let start = osts
            .first()
            .map_or_else(|| self.index.unwrap_or(-1), |ost| i32::try_from(*ost).unwrap_or(-1));
        let last = types::TARGET_INDEX_MAX;
        if !(-1..=last as i32).contains(&start) {
            return Err(format!("bad stripe offset {start}: expected -1 (any), 0 to {last}"));
        }
        let named = self.pool.clone().unwrap_or_default();
        let pool = padded(&named)?;
        let overstriped = self.overstriped && osts.is_empty(); // a list says it by itself
        let template =
            Template { stripe_size, stripe_count: count, overstriped, start, pool, osts };
        Ok(Named { template, pool: named })
    }
}

fn check_count(count: i32, overstriped: bool) -> Result<(), String> {
    let least = if overstriped { -i32::from(layout::OVERSTRIPES_MAX) } else { -1 };
    if (least..=i32::from(layout::STRIPE_COUNT_MAX)).contains(&count) {
        return Ok(());
    }
    Err(if overstriped {
        format!(
            "bad overstripe count {count}: expected -32 to -1 (on every OST), 0 (default) to 2000"
        )
    } else {
        format!("bad stripe count {count}: expected -1 (all), 0 (default) to 2000")
    })
}

/// The pool as a request has it. `none` and `ignore` are no pool, whatever the directory says;
/// `inherit` is the directory's.
fn padded(named: &str) -> Result<[u8; layout::POOL_BYTES], String> {
    let (_, name) = pools::parse(named);
    match name {
        "" | "inherit" => Ok([0; layout::POOL_BYTES]),
        "none" | "ignore" => Ok(layout::pool::IGNORE),
        _ => layout::pool::padded(name).map_err(|error| format!("bad pool '{named}': {error}")),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        parts: Parts,
        #[arg(required = true)]
        paths: Vec<String>,
    }

    fn check(line: &str) -> Result<Asked, String> {
        let parsed = Line::try_parse_from(format!("setstripe {line}").split_whitespace())
            .map_err(|error| error.to_string())?;
        assert!(!parsed.paths.is_empty());
        parsed.parts.asked().map(|(asked, _)| asked)
    }

    fn plain(line: &str) -> Template {
        match check(line).expect(line) {
            Asked::Plain(template) => template,
            Asked::Composite(_) => panic!("{line}: components"),
        }
    }

    /// `END:mdt` or `END:COUNTxSIZE@POOL` of each component, in KiB; behind it `+` and its step.
    fn parts(line: &str) -> String {
        let Asked::Composite(template) = check(line).expect(line) else { panic!("{line}: plain") };
        let part = |part: &TemplateComponent| {
            let end =
                if part.end == END_OF_FILE { "eof".into() } else { (part.end >> 10).to_string() };
            match &part.wanted {
                Wanted::Mdt => format!("{end}:mdt"),
                Wanted::Striped(one) | Wanted::Extendable(one, _) => {
                    let (count, size) = (one.stripe_count, one.stripe_size >> 10);
                    let step = match &part.wanted {
                        Wanted::Extendable(_, step) => format!("+{}", step >> 10),
                        _ => String::new(),
                    };
                    format!("{end}:{count}x{size}@{}{step}", one.pool_name())
                }
            }
        };
        template.components.iter().map(part).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_layout_is_what_the_options_say() {
        let all = plain("-c -1 -S 4M -i 2 -p none d");
        assert_eq!(
            (all.stripe_count, all.stripe_size, all.start, all.pool),
            (-1, 4 << 20, 2, layout::pool::IGNORE)
        );
        assert_eq!(plain("-p ignore d").pool, layout::pool::IGNORE);
        assert_eq!(plain("-p inherit d").pool, [0; 16]);
        let pooled = plain("-p testfs.flash d");
        assert_eq!((pooled.pool_name().as_str(), plain("-p flash d")), ("flash", pooled.clone()));
        let listed = plain("-o 3,0-1 f");
        assert_eq!((listed.osts, listed.stripe_count, listed.start), (vec![3, 0, 1], 3, 3));
        let twice = plain("-o 1,1 f");
        assert_eq!((twice.osts, twice.stripe_count, twice.overstriped), (vec![1, 1], 2, false));
        for (line, want) in [
            ("-C 8 f", (8, true)),
            ("-C -2 f", (-2, true)),
            ("--overstripe-count=-32 f", (-32, true)),
            ("-C 8 -c 2 f", (2, false)),
            ("-c 2 -C 8 f", (8, true)),
            ("-C 0 f", (0, false)),
            ("-C 2 -o 1,1 f", (2, false)),
        ] {
            let Template { stripe_count, overstriped, .. } = plain(line);
            assert_eq!((stripe_count, overstriped), want, "{line}");
        }
        let sizes = ["-S 64 f", "-S 4032 f", "-S 65536 f", "-S 0 f"];
        let bytes = sizes.map(|line| plain(line).stripe_size);
        assert_eq!(bytes, [64 << 10, 4032 << 10, 64 << 10, 0], "small numbers are KiB");
        let default = plain("--stripe-count=2 f g");
        assert_eq!((default.stripe_count, default.stripe_size, default.start), (2, 0, -1));
    }

    /// Command lines of "DoM, DNE and PFL working together" (LUG 2018), and others of Lustre's
    /// manual.
    #[test]
    fn components_are_what_the_options_between_their_ends_say() {
        for (line, want) in [
            ("-E 64K -L mdt -E -1 -p testfs.disk -c 1 -S 1m d", "64:mdt eof:1x1024@disk"),
            (
                "-E 64K -p testfs.flash -c 1 -S 64K -E -1 -p testfs.disk -c 1 -S 1m d",
                "64:1x64@flash eof:1x1024@disk",
            ),
            (
                "-E 4M -p testfs.flash -c 1 -S 1m -E -1 -p testfs.disk -c 1 -S 1m d",
                "4096:1x1024@flash eof:1x1024@disk",
            ),
            ("-E 1M -L mdt -E eof -c 4 d", "1024:mdt eof:4x0@"),
            ("-c 2 -E 1g -E EOF -c -1 f", "1048576:2x0@ eof:-1x0@"),
            (
                "-E 1g -p a -E 2g -p none -E -1 -p inherit f",
                "1048576:0x0@a 2097152:0x0@ignore eof:0x0@",
            ),
            ("-E 64 f", "64:0x0@"),
            (
                "-E 128m -S 1M -c 2 -p a -E 1G -E -1 -c 8 f",
                "131072:2x1024@a 1048576:2x1024@a eof:8x1024@a",
            ),
            ("--component-end 64k --layout mdt --comp-end -1 f", "64:mdt eof:0x0@"),
            ("-E 1G -z 64M -E -1 -z 256M f", "1048576:0x0@+65536 eof:0x0@+262144"),
            (
                "-E 64K -L mdt -E 1G -c 1 -p flash --ext-size 64M -E -1 -p disk f",
                "64:mdt 1048576:1x0@flash+65536 eof:1x0@disk",
            ),
        ] {
            assert_eq!(parts(line), want, "{line}");
        }
    }

    #[test]
    fn a_wrong_option_is_named() {
        for (line, part) in [
            ("-S 1000 f", "bad stripe size 1024000"),
            ("-S 5000 f", "bad stripe size 5000"),
            ("-c -2 f", "bad stripe count -2"),
            ("-C -33 f", "bad overstripe count -33"),
            ("-C 2001 f", "bad overstripe count 2001"),
            ("-E 64K -L mdt -C 2 f", "Option 'stripe-count' can't be specified with"),
            ("-C 3 -o 1,2 f", "list of 2 OSTs"),
            ("-c 3 -o 1,2 f", "list of 2 OSTs"),
            ("-o 2-1 f", "bad OST list"),
            ("-S 4G f", "4 GiB"),
            ("-i 70000 f", "bad stripe offset"),
            ("-p testfs.fl/ash f", "bad pool 'testfs.fl/ash'"),
            ("-E 100000 f", "bad component end '100000', must be a multiple of 64k"),
            ("-E 1M -E 1M f", "starts at 1048576"),
            ("-E -1 -E 2M f", "a component starts at"),
            ("-E 1M -S 4M f", "not a multiple of its stripe size 4194304"),
            ("-E 1M -E -1 -L mdt f", "data on MDT is possible in the first component only"),
            (
                "-E 64K -L mdt -c 2 f",
                "Option 'stripe-count' can't be specified with Data-on-MDT component",
            ),
            ("-E 64K -p a -L mdt f", "Option 'pool' can't be specified with Data-on-MDT"),
            ("-E 2g -L mdt -E -1 f", "ends at 1073741824 at most"),
            ("-E -1 -L mdt f", "ends at 1073741824 at most"),
            ("-L mdt f", "needs a component"),
            ("-L raid1 f", "bad layout 'raid1'"),
            ("-z 64M f", "'extension-size' needs a component"),
            ("-E 1G -z 100000 f", "bad extension size 100000, must be a multiple of 64k"),
            ("-E 1G -z 0 f", "bad extension size 0"),
            ("-E 1G -z 8T f", "extension size 8796093022208 is not a multiple"),
            (
                "-E 64K -L mdt -z 64K -E -1 f",
                "Option 'extension-size' can't be specified with Data-on-MDT component",
            ),
            ("-N2 f", "mirrors"),
        ] {
            let error = check(line).expect_err(line);
            assert!(error.contains(part), "{line}: {error}");
        }
    }
}
