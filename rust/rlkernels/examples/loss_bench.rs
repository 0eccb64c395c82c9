#![allow(missing_docs)]
use rlkernels::policy_loss::*;
use rlkernels::rows::*;
use rlkernels::isa;
use std::time::Instant;
fn main() {
    let (b, t) = (32usize, 2048usize);
    let mut x = 1u64;
    let mut rnd = || { x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407); (x >> 40) as f32 / 16777216.0 };
    let policy: Vec<f32> = (0..b*t).map(|_| -3.0 * rnd()).collect();
    let old: Vec<f32> = policy.iter().map(|p| p + 0.3 * (rnd() - 0.5)).collect();
    let refe: Vec<f32> = policy.iter().map(|p| p + 0.6 * (rnd() - 0.5)).collect();
    let adv: Vec<f32> = (0..b).map(|_| rnd() - 0.5).collect();
    let lens: Vec<usize> = (0..b).map(|_| t/2 + (rnd() * (t/2) as f32) as usize).collect();
    let mask: Vec<u8> = (0..b*t).map(|i| u8::from(i % t < lens[i / t])).collect();
    let p64: Vec<f64> = policy.iter().map(|&x| f64::from(x)).collect();
    let o64: Vec<f64> = old.iter().map(|&x| f64::from(x)).collect();
    let r64: Vec<f64> = refe.iter().map(|&x| f64::from(x)).collect();
    let a64: Vec<f64> = adv.iter().map(|&x| f64::from(x)).collect();
    let mut g = vec![0f32; b*t];
    let mut g64 = vec![0f64; b*t];
    for isa in isa::available() { isa::choose(isa).unwrap();
      for threads in [1, 2] { rlkernels::parallel::set_threads(threads).unwrap();
        for (name, valid) in [("full", Valid::All), ("mask", Valid::Mask(&mask))] {
        for (alg, beta) in [(Algorithm::Grpo, 0.0), (Algorithm::Grpo, 0.04), (Algorithm::Gspo, 0.0), (Algorithm::Sapo, 0.0)] {
          let rows = Rows::Padded { rows: b, width: t, valid };
          let mut c = Convention::new(alg);
          if alg != Algorithm::Sapo { c.epsilon_low = Some(0.2); c.epsilon_high = Some(0.2); }
          c.beta = beta;
          let step = Step { policy: &policy, old: Some(&old), reference: Some(&refe), advantages: Signal::Rows(&adv), weights: None, rows };
          let step64 = Step { policy: &p64, old: Some(&o64), reference: Some(&r64), advantages: Signal::Rows(&a64), weights: None, rows };
          let (mut best, mut best64) = (f64::MAX, f64::MAX);
          let mut l = 0.0;
          for _ in 0..if isa == isa::Isa::Scalar {20} else {300} {
            let s = Instant::now(); l = policy_loss(&step, &c, &mut g).unwrap().value; best = best.min(s.elapsed().as_secs_f64());
          }
          for _ in 0..20 {
            let s = Instant::now(); policy_loss(&step64, &c, &mut g64).unwrap(); best64 = best64.min(s.elapsed().as_secs_f64());
          }
          println!("{isa} {threads} {name} {} {beta} {:.1} us  f64 {:.1} us loss {l}", alg.name(), best * 1e6, best64 * 1e6);
        }}
      }
    }
}
