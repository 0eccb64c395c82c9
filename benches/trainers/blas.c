/* NumPy's own OpenBLAS under the names that MLX calls. NumPy's wheels prefix every name and count in 64 bits, so that
 * their OpenBLAS cannot be loaded in place of the reference BLAS of MLX's wheels; this file is what lies between.
 * Loaded first (LD_PRELOAD) in every process that computes with MLX; benches/trainers/blas.py builds it. */

typedef long long wide;

extern void scipy_cblas_sgemm64_(int, int, int, wide, wide, wide, float, const float *, wide, const float *, wide, float,
                                 float *, wide);
extern void scipy_cblas_dgemm64_(int, int, int, wide, wide, wide, double, const double *, wide, const double *, wide,
                                 double, double *, wide);

void cblas_sgemm(int order, int left, int right, int m, int n, int k, float alpha, const float *a, int lda, const float *b,
                 int ldb, float beta, float *c, int ldc) {
    scipy_cblas_sgemm64_(order, left, right, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}

void cblas_dgemm(int order, int left, int right, int m, int n, int k, double alpha, const double *a, int lda,
                 const double *b, int ldb, double beta, double *c, int ldc) {
    scipy_cblas_dgemm64_(order, left, right, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}
