//! The arguments that name a store and a table, and opening them.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use lapis::{Config, IndexKind, LeafLayout, Placement, Store, Table, TableOptions};

use crate::failure::Failure;
use crate::time_argument;

/// How long a commit waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Durability {
    /// Until it survives a power cut, with --pmem if that is persistent memory; commits of several
    /// threads share a write to the disk
    #[default]
    Immediate,
    /// For nothing; it is written at once all the same
    Group,
    /// For nothing; it is written a twentieth of a second later, or with the next that waits
    Eventual,
}

/// The store.
#[derive(Clone, Debug, Args)]
pub struct StoreArguments {
    /// The store's directory
    #[arg(long, value_name = "DIR")]
    pub dir: PathBuf,
    #[command(flatten)]
    pub options: StoreOptions,
}

/// How a store is opened.
#[derive(Clone, Debug, Args)]
pub struct StoreOptions {
    /// How long a commit waits
    #[arg(long, value_name = "HOW", value_enum, default_value_t)]
    pub durability: Durability,
    /// DRAM for pages, in MiB
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = cache_mib())]
    pub cache_mib: u32,
    /// Persistent memory of a store that is created: a directory, a file to make, or a device
    #[arg(long, value_name = "PATH")]
    pub pmem: Option<PathBuf>,
    /// How much of it, in MiB
    #[arg(long, value_name = "N", default_value_t = 256, requires = "pmem", value_parser = clap::value_parser!(u32).range(16..=1 << 24))]
    pub pmem_mib: u32,
    /// Take a device for it that holds another store's, which is lost
    #[arg(long, requires = "pmem")]
    pub pmem_overwrite: bool,
    /// Which way pages take between DRAM, persistent memory and the SSD: ssd, basic-nvm, three-tier or
    /// spitfire[:D_r,D_w,N_r,N_w]
    /// with the chances, from 0 to 1, that a page in persistent memory comes to DRAM when it is read and when it is changed,
    /// and that one enters persistent memory from the SSD and from DRAM; spitfire:tuned and spitfire:D_r,D_w,N_r,N_w,tuned tune
    /// them while the store is open [default: three-tier, without --pmem ssd]
    #[arg(long, value_name = "WAY", value_parser = parse_placement)]
    pub placement: Option<Placement>,
    /// Whether commits write back the processor's caches to persistent memory
    #[arg(long, value_name = "WHETHER", value_enum, default_value_t)]
    pub pmem_caches: Caches,
}

/// Parses how much DRAM pages get, if the machine has as much.
fn cache_mib() -> impl TypedValueParser<Value = u32> {
    clap::value_parser!(u32).range(1..=1 << 20).try_map(|mib| {
        // What is known of each page takes more: a sixteenth, of the smallest pages. It is given back at once.
        let bytes = ((mib as usize) << 20) / 16 * 17;
        let mut room = Vec::<u8>::new();
        let reserved = room.try_reserve_exact(bytes);
        // What nobody looks at would not be asked for.
        std::hint::black_box(&room);
        reserved
            .map(|()| mib)
            .map_err(|_| "this machine does not give so much memory; ask for less")
    })
}

/// Parses which way pages take. A store has a directory, so its pages are on an SSD, and DRAM alone is none of the ways.
fn parse_placement(text: &str) -> Result<Placement, String> {
    match text.parse() {
        Ok(Placement::MainMemory) | Err(_) => Err(
            "choose ssd, basic-nvm, three-tier or spitfire, the last with four chances from 0 to 1 if they are to \
             be others than its own, as in spitfire:0.1,0.9,0.2,1, and with `tuned` if they are to be tuned, as in \
             spitfire:tuned or spitfire:0.1,0.9,0.2,1,tuned"
                .to_owned(),
        ),
        Ok(placement) => Ok(placement),
    }
}

/// What the processor's caches are worth when the power fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Caches {
    /// As the platform says
    #[default]
    Detect,
    /// They are lost: always write back
    Volatile,
    /// They are kept: never write back
    PowerFailSafe,
}

impl StoreArguments {
    /// Opens the store, which must be there.
    pub fn open(&self) -> Result<Store, Failure> {
        self.open_or_create(false)
    }

    /// Opens the store to read it: beside others who do, and without writing to it.
    pub fn open_to_read(&self) -> Result<Store, Failure> {
        Ok(self.try_open_to_read()?)
    }

    /// The same, for those who look at the error.
    pub fn try_open_to_read(&self) -> Result<Store, lapis::Error> {
        match Store::open(self.config().read_only(true)) {
            // A device cannot be mapped so; and what else is wrong with memory is wrong again.
            Err(lapis::Error::Memory { .. }) => Store::open(self.config().create(false)),
            opened => opened,
        }
    }

    /// Opens the store; creates it if asked to.
    pub fn open_or_create(&self, create: bool) -> Result<Store, Failure> {
        Store::open(self.config().create(create)).map_err(|error| match error {
            // A file has this name until the store is whole, and nobody has given it.
            lapis::Error::Memory { path, source }
                if self.options.pmem.as_ref().is_some_and(|given| *given != path)
                    && path.extension().is_some_and(|end| end == "new") =>
            {
                lapis::Error::Memory { path: path.with_extension(""), source }.into()
            }
            error => error.into(),
        })
    }

    /// What the arguments say.
    pub fn config(&self) -> Config {
        let durability = match self.options.durability {
            Durability::Immediate => lapis::Durability::Immediate,
            Durability::Group => lapis::Durability::Group,
            Durability::Eventual => lapis::Durability::Eventual,
        };
        let cache_bytes = (self.options.cache_mib as usize) << 20;
        let mut config =
            Config::new(&self.dir).cache_bytes(cache_bytes).contain_memory_faults(true);
        if let Some(path) = &self.options.pmem {
            config = config.persistent_memory(path, (self.options.pmem_mib as usize) << 20);
        }
        if let Some(placement) = self.options.placement {
            config = config.placement(placement);
        }
        let caches = match self.options.pmem_caches {
            Caches::Detect => lapis::Caches::Detect,
            Caches::Volatile => lapis::Caches::Volatile,
            Caches::PowerFailSafe => lapis::Caches::PowerFailSafe,
        };
        config = config.caches(caches).overwrite_device(self.options.pmem_overwrite);
        config.durability(durability)
    }
}

/// The table of a command that reads.
#[derive(Clone, Debug, Args)]
pub struct TableArguments {
    /// The table
    #[arg(long, value_name = "NAME", default_value = "main")]
    pub table: String,
}

impl TableArguments {
    /// Opens the table, which must be there.
    pub fn open(&self, store: &Store) -> Result<Table, Failure> {
        store.table(&self.table).map_err(|error| match error {
            lapis::Error::NoSuchTable { .. } => {
                let names: Vec<_> = store
                    .tables()
                    .into_iter()
                    .map(|table| table.name().to_owned())
                    .filter(|name| !is_internal(name))
                    .collect();
                Failure::refused(if names.is_empty() {
                    format!(
                        "the store has no table `{}`, nor any other; put or import something first",
                        self.table
                    )
                } else {
                    format!("the store has no table `{}`; it has {}", self.table, names.join(", "))
                })
            }
            error => error.into(),
        })
    }
}

/// How the leaves of a B+-tree find an entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Leaves {
    /// By binary search
    #[default]
    Sorted,
    /// By a hash: fewer lines are loaded from persistent memory; reading in order takes longer
    Hashed,
}

impl From<Leaves> for LeafLayout {
    fn from(leaves: Leaves) -> Self {
        match leaves {
            Leaves::Sorted => Self::Sorted,
            Leaves::Hashed => Self::Hashed,
        }
    }
}

/// The table of a command that writes and creates it if it is not there.
#[derive(Clone, Debug, Args)]
pub struct NewTableArguments {
    #[command(flatten)]
    kept: LastingTableArguments,
    /// How long entries live of a table that has to be created, if they are not given a time: as in 90s, 5m, 2h, 30d
    /// [default: for ever]
    #[arg(long, value_name = "TIME", value_parser = time_argument::parse)]
    table_ttl: Option<Duration>,
}

impl NewTableArguments {
    /// Opens the table; creates it if it is not there.
    pub fn open(&self, store: &Store) -> Result<Table, Failure> {
        let table = self.kept.open_or_create(store, self.table_ttl)?;
        let lives = table.time_to_live();
        if self.table_ttl.is_some() && self.table_ttl != lives {
            return Err(Failure::refused(format!(
                "the table `{}` exists and its entries live {}; leave --table-ttl out or name another table",
                self.kept.table,
                lives.map_or("for ever".to_owned(), |time| format!("{} s", time.as_secs_f64()))
            )));
        }
        Ok(table)
    }
}

/// The same, of entries that live for ever.
#[derive(Clone, Debug, Args)]
pub struct LastingTableArguments {
    /// The table; created if it is not there
    #[arg(long, value_name = "NAME", default_value = "main")]
    table: String,
    /// The persistent index of a table that has to be created, in persistent memory [default: a B+-tree]
    #[arg(long, value_name = "KIND", value_parser = index_kinds())]
    index: Option<IndexKind>,
    /// How the leaves of that B+-tree find an entry [default: sorted]
    #[arg(long, value_name = "HOW", value_enum, conflicts_with = "index")]
    leaves: Option<Leaves>,
}

impl LastingTableArguments {
    /// Opens the table; creates it if it is not there.
    pub fn open(&self, store: &Store) -> Result<Table, Failure> {
        let table = self.open_or_create(store, None)?;
        match table.time_to_live() {
            Some(lives) => Err(Failure::refused(format!(
                "the entries of the table `{}` live {} s, and would be gone when they are asked for; name another \
                 with --table",
                self.table,
                lives.as_secs_f64()
            ))),
            None => Ok(table),
        }
    }

    fn open_or_create(
        &self,
        store: &Store,
        time_to_live: Option<Duration>,
    ) -> Result<Table, Failure> {
        if is_internal(&self.table) {
            return Err(Failure::refused(format!(
                "`{}` is not a name for a table: those that start with a dot are Lapis' own",
                self.table
            )));
        }
        let options = TableOptions {
            index: self.index,
            leaves: self.leaves.unwrap_or_default().into(),
            time_to_live,
            ..TableOptions::default()
        };
        let table = match store.table(&self.table) {
            Err(lapis::Error::NoSuchTable { .. }) => {
                return Ok(store.create_table_with(&self.table, &options)?);
            }
            found => found?,
        };
        let held_by = table.index_kind();
        if self.index.is_some() && self.index != held_by {
            return Err(Failure::refused(format!(
                "the table `{}` exists and is held by {}; leave --index out or name another table",
                self.table,
                held_by.map_or("a B+-tree", IndexKind::name)
            )));
        }
        if self.leaves.is_some_and(|leaves| table.leaves() != Some(leaves.into())) {
            return Err(Failure::refused(format!(
                "the table `{}` exists and has no such leaves; leave --leaves out or name another table",
                self.table
            )));
        }
        Ok(table)
    }
}

/// Parses the name of an index structure.
pub fn index_kinds() -> impl TypedValueParser<Value = IndexKind> {
    PossibleValuesParser::new(IndexKind::ALL.map(IndexKind::name))
        .map(|name| IndexKind::from_name(&name).unwrap_or(IndexKind::Wort))
}

/// Whether a table is Lapis' own.
pub fn is_internal(table: &str) -> bool {
    table.starts_with('.')
}
