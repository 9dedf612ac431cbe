//! The trial in the file system of the container image: the steps of `packaging/Containerfile` are
//! carried out in a bare Debian 12 for each stage, without a container runtime.
//!
//! An image that is based on Rust gets the host's toolchain and the packages that the README names.
//! Files are copied before a stage's commands run.

use std::fs;

use anyhow::{Context, Result, bail, ensure};

use super::{Root, Rust, SUITE, trial};
use crate::{readme, run};

const RECIPE: &str = "packaging/Containerfile";

/// A stage of the recipe.
#[derive(Debug, Default)]
struct Stage {
    name: String,
    base: String,
    /// Where its commands run at last.
    dir: String,
    copies: Vec<Copied>,
    /// For a shell.
    commands: Vec<String>,
}

/// Files that come from elsewhere.
#[derive(Debug, PartialEq, Eq)]
enum Copied {
    /// This tree, to a directory.
    Tree(String),
    /// A file of an earlier stage.
    File { stage: String, from: String, to: String },
}

/// Makes the image's file system, and tries the README's session there.
pub(super) fn trial() -> Result<()> {
    let read = |name: &str| fs::read_to_string(run::root().join(name)).context(name.to_owned());
    let mut made: Vec<(String, Root)> = Vec::new();
    for stage in stages(&read(RECIPE)?)? {
        let root = stage.make(&made)?;
        made.push((stage.name, root));
    }
    let (_, image) = made.pop().with_context(|| format!("{RECIPE} has no stage"))?;
    drop(made); // what was built takes much room
    trial::put(&image, &trial::script(&read("README.md")?)?)?;
    image.run(trial::PACKAGES, &[trial::command()], Rust::None)
}

impl Stage {
    fn make(&self, made: &[(String, Root)]) -> Result<Root> {
        let (packages, rust) = base(&self.base)?;
        let root = Root::new(&self.name)?;
        for copy in &self.copies {
            match copy {
                Copied::Tree(to) => {
                    root.clone_tree(to)?;
                    fs::remove_dir_all(root.at(to).join(".git"))?; // as .dockerignore has it
                }
                Copied::File { stage, from, to } => {
                    let source = made.iter().find(|(name, _)| name == stage);
                    let (_, source) = source.with_context(|| format!("no stage {stage}"))?;
                    fs::copy(source.at(from), root.at(to)).with_context(|| from.clone())?;
                }
            }
        }
        root.run(&packages, &self.commands, rust)?;
        Ok(root)
    }
}

/// Packages that a base image has beside those of a bare system, and whether it has Rust.
fn base(image: &str) -> Result<(String, Rust)> {
    ensure!(image.contains(SUITE), "{image}: Debian {SUITE} alone can be made");
    match image.rsplit('/').next().and_then(|name| name.split(':').next()) {
        Some("debian") => Ok((String::new(), Rust::None)),
        Some("rust") => Ok((readme::packages()?, Rust::OfTheHost)),
        _ => bail!("{image} cannot be made: only images of debian and rust can"),
    }
}

fn stages(recipe: &str) -> Result<Vec<Stage>> {
    let text = recipe.replace("\\\n", " ");
    let lines = text.lines().map(str::trim);
    let mut stages: Vec<Stage> = Vec::new();
    for line in lines.filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let words: Vec<&str> = line.split_whitespace().collect();
        if let ["FROM", base, name @ ..] = words.as_slice() {
            let name = name.last().copied().unwrap_or("image").to_owned();
            stages.push(Stage { name, base: (*base).to_owned(), ..Stage::default() });
            continue;
        }
        let (first, rest) = words.split_first().context("a line has words")?;
        match (*first, rest, stages.last_mut()) {
            ("WORKDIR", [dir], Some(stage)) => {
                (*dir).clone_into(&mut stage.dir);
                stage.commands.push(format!("mkdir -p {dir} && cd {dir}"));
            }
            ("RUN", command, Some(stage)) => {
                stage.commands.push(format!("({})", command.join(" ")))
            }
            ("COPY", [".", "."], Some(stage)) => stage.copies.push(Copied::Tree(stage.dir.clone())),
            ("COPY", [of, from, to], Some(stage)) if of.starts_with("--from=") => {
                let name = of.trim_start_matches("--from=").to_owned();
                let (from, to) = ((*from).to_owned(), (*to).to_owned());
                stage.copies.push(Copied::File { stage: name, from, to });
            }
            ("ENTRYPOINT", ..) => {}
            _ => bail!("{RECIPE}: '{line}' is not understood here"),
        }
    }
    Ok(stages)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_recipe_of_the_image_is_understood() {
        let text = fs::read_to_string(run::root().join(RECIPE)).expect("the recipe");
        let stages = stages(&text).expect("understood");
        let [build, image] = stages.as_slice() else { panic!("two stages: {stages:?}") };
        assert_eq!((build.name.as_str(), build.dir.as_str()), ("build", "/nacre"));
        assert_eq!(build.copies, [Copied::Tree("/nacre".to_owned())]);
        let built = "(cargo build --release --locked -p nacre)";
        assert_eq!(build.commands, ["mkdir -p /nacre && cd /nacre", built]);
        assert_eq!(base(&build.base).expect("known").1, Rust::OfTheHost);
        let binary = Copied::File {
            stage: "build".to_owned(),
            from: "/nacre/target/release/nacre".to_owned(),
            to: "/usr/bin/nacre".to_owned(),
        };
        assert_eq!(image.copies, [binary]);
        assert!(image.commands[0].contains("apt-get install -y --no-install-recommends fuse3 &&"));
        assert!(image.commands[1].starts_with("(ln -s nacre /usr/bin/lfs && ln -s "));
        assert_eq!(base(&image.base).expect("known"), (String::new(), Rust::None));
    }

    #[test]
    fn other_recipes_are_refused() {
        for text in ["RUN true", "FROM a AS b\nVOLUME /c", "FROM a\nCOPY --chown=1 b c"] {
            assert!(stages(text).is_err(), "{text}");
        }
        for image in ["docker.io/library/debian:trixie-slim", "alpine:bookworm"] {
            assert!(base(image).is_err(), "{image}");
        }
    }
}
