"""Three jobs in a row, each run for the same key as the one before; the producer's date goes along."""

from tidegate import Asset, Job, PartitionedAssetTimetable

raw, cleaned, enriched, published = (Asset(name) for name in ("raw", "cleaned", "enriched", "published"))

clean = Job("clean", schedule=PartitionedAssetTimetable(assets=raw), outlets=[cleaned])
enrich = Job("enrich", schedule=PartitionedAssetTimetable(assets=cleaned), outlets=[enriched])
publish = Job("publish", schedule=PartitionedAssetTimetable(assets=enriched), outlets=[published])
