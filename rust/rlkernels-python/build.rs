//! Lays the Python modules where maturin collects them, and hands docstrings and facts of the build to the extension.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR for build scripts"));
    copy_modules(&out)?;
    write_docstrings(&out)?;
    println!("cargo::rerun-if-changed=rlkernels.pyi");
    println!("cargo::rerun-if-changed=python");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-env=RLKERNELS_TARGET={}", fact("TARGET"));
    println!("cargo::rustc-env=RLKERNELS_RUSTC={}", rustc_version());
    Ok(())
}

/// The parts of the package that are written in Python.
fn copy_modules(out: &Path) -> io::Result<()> {
    fs::create_dir_all(out.join("compat"))?;
    for entry in fs::read_dir("python/compat")? {
        let source = entry?.path();
        if source
            .extension()
            .is_some_and(|extension| extension == "py")
            && let Some(name) = source.file_name()
        {
            fs::copy(&source, out.join("compat").join(name))?;
        }
    }
    Ok(())
}

/// The docstrings of the stub and of every function in it, where `#[doc = include_str!(…)]` finds it: `help` shows what the stub says.
fn write_docstrings(out: &Path) -> io::Result<()> {
    let stub = fs::read_to_string("rlkernels.pyi")?;
    let folder = out.join("docs");
    fs::create_dir_all(&folder)?;
    if let Some(text) = stub.split("\"\"\"").nth(1) {
        fs::write(folder.join("module"), text.trim_end())?;
    }
    for function in format!("\n{stub}").split("\ndef ").skip(1) {
        let name = function.split('(').next().unwrap_or_default();
        // an overload has no docstring of its own; the text up to the next definition is then only its signature
        if let Some(text) = function.split("\"\"\"").nth(1) {
            let lines: Vec<&str> = text
                .lines()
                .map(|line| line.strip_prefix("    ").unwrap_or(line))
                .collect();
            fs::write(folder.join(name), lines.join("\n").trim_end())?;
        }
    }
    Ok(())
}

fn fact(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| "unknown".into())
}

fn rustc_version() -> String {
    Command::new(fact("RUSTC"))
        .arg("--version")
        .output()
        .ok()
        .and_then(|output| String::from_utf8(output.stdout).ok())
        .map_or_else(|| "unknown".into(), |text| text.trim().into())
}
