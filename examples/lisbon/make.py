"""Generate forty stops in Lisbon, five vans, and driving times: stops.csv, vans.csv, durations.csv.

    python examples/lisbon/make.py

The shops do not exist. The minutes between them are generated, too, but resemble those of a city: a street is 1.2 to
1.5 times as long as the geodesic, vans drive 18 km/h in the centre and 35 km/h outside it, and each start and end takes
a minute. Uphill and one-way streets make the way back different, so the matrix is asymmetric.
"""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

from routing_gym.planning.geography import geodesic_km

HERE = Path(__file__).parent
SEED = 38
CENTRE = np.array([38.7167, -9.1394])  # Rossio: latitude, longitude
DEPOT = np.array([38.7790, -9.1180])  # a warehouse beside the airport
DISTRICTS = {  # latitude and longitude of their centres
    "Alfama": (38.7120, -9.1300),
    "Alvalade": (38.7530, -9.1440),
    "Arroios": (38.7330, -9.1340),
    "Belém": (38.6990, -9.2060),
    "Benfica": (38.7510, -9.2020),
    "Chiado": (38.7105, -9.1420),
    "Estrela": (38.7130, -9.1600),
    "Lumiar": (38.7700, -9.1600),
    "Marvila": (38.7420, -9.1050),
    "Olivais": (38.7680, -9.1020),
}
GOODS = ("bakery", "bookshop", "café", "pharmacy")
NUM_VANS, CAPACITY = 5, 60
WINDOWS = (("08:00", "12:00"), ("09:00", "13:00"), ("10:00", "14:00"), ("08:00", "18:00"), ("14:00", "18:00"))


def stops(rng: np.random.Generator) -> list[dict[str, object]]:
    """Return the rows of stops.csv: the depot, and a shop of each kind in each district."""
    rows: list[dict[str, object]] = [stop("DEPOT", "warehouse", DEPOT, 0, ("07:30", "18:30"), 0)]
    for district, middle in DISTRICTS.items():
        for goods in GOODS:
            place = np.array(middle) + rng.normal(0, 1, 2) * [0.004, 0.005]
            window = WINDOWS[rng.integers(len(WINDOWS))]
            name = f"{goods} in {district}"
            rows.append(
                stop(f"L{len(rows):02d}", name, place, int(rng.integers(2, 11)), window, 5 + goods_minutes(rng))
            )
    return rows


def goods_minutes(rng: np.random.Generator) -> int:
    """Return the minutes of unloading beyond five."""
    return int(rng.integers(0, 8))


def stop(
    key: str, name: str, place: np.ndarray, demand: int, window: tuple[str, str], service: int
) -> dict[str, object]:
    """Return one row of stops.csv."""
    latitude, longitude = (round(float(degrees), 5) for degrees in place)
    return {
        "id": key,
        "name": name,
        "lat": latitude,
        "lon": longitude,
        "demand": demand,
        "earliest": window[0],
        "latest": window[1],
        "service": service,
    }


def durations(points: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return the driving minutes between all stops and the depot, (A, A)."""
    km = geodesic_km(points)
    detour = rng.uniform(1.2, 1.5, km.shape)
    from_centre = geodesic_km(np.concatenate([CENTRE[None], points]))[0, 1:]
    speed = np.where((from_centre[:, None] + from_centre) / 2 < 3, 18.0, 35.0)  # km/h
    uphill = 1 + 0.1 * np.sign(points[None, :, 0] - points[:, None, 0])  # the river, in the south, is lowest
    minutes = km * detour / speed * 60 * uphill + 2
    np.fill_diagonal(minutes, 0)
    return np.round(minutes, 1)


def write(path: Path, rows: list[list[object]]) -> None:
    """Write a CSV file."""
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)


def main(folder: Path = HERE) -> None:
    """Write the three files."""
    rng = np.random.default_rng(SEED)
    rows = stops(rng)
    write(folder / "stops.csv", [list(rows[0]), *(list(row.values()) for row in rows)])
    vans = [[f"van {number}", CAPACITY, "08:00", "18:00"] for number in range(1, NUM_VANS + 1)]
    write(folder / "vans.csv", [["name", "capacity", "earliest", "latest"], *vans])
    matrix = durations(np.array([[row["lat"], row["lon"]] for row in rows], dtype=float), rng)
    ids = [row["id"] for row in rows]
    write(
        folder / "durations.csv", [["", *ids], *([key, *line] for key, line in zip(ids, matrix.tolist(), strict=True))]
    )


if __name__ == "__main__":
    main()
